//! A participant as the program that measures sees it: a process that answers requests.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::protocol::{Answer, Request};

/// The subcommand of `outboard` that is a participant.
pub(crate) const SUBCOMMAND: &str = "bench-participant";

/// Where the statistics of a participant's client library go.
pub(crate) const STATISTICS: &str = "OUTBOARD_STATS_FILE";

/// A running participant; killed when dropped.
pub(crate) struct Participant {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Answer>,
    log: Option<PathBuf>,
    alive: bool,
}

impl Participant {
    /// Starts it. What it says on standard error goes to the file `log`, or where this process's
    /// goes.
    pub(crate) fn start(
        mut command: Command,
        log: Option<&Path>,
    ) -> Result<Participant, BenchError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let errors = match log {
            Some(log) => File::create(log)
                .map_err(BenchError::system(format!("cannot write {}", log.display())))?
                .into(),
            None => Stdio::inherit(),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child =
            command.spawn().map_err(BenchError::system(format!("cannot start {name}")))?;
        let requests = child.stdin.take();
        let (send, answers) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                // Other lines are what libraries print.
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                for answer in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                    if send.send(answer).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Participant { child, requests, answers, log: log.map(Path::to_owned), alive: true })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it can be asked.
    pub(crate) fn alive(&self) -> bool {
        self.alive
    }

    /// Sends a request; the answer is to be received.
    pub(crate) fn send(&mut self, request: &Request) {
        let line = serde_json::to_string(request).unwrap_or_default() + "\n";
        // If it has ended, receiving finds that out.
        if let Some(requests) = &mut self.requests {
            let _ = requests.write_all(line.as_bytes()).and_then(|()| requests.flush());
        }
    }

    /// Its next answer; one that it failed when none comes in time, and then it is no longer alive.
    pub(crate) fn receive(&mut self, limit: Duration) -> Answer {
        match self.answers.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(error) => {
                self.alive = false;
                let reason = match error {
                    RecvTimeoutError::Timeout => format!("no answer within {} s", limit.as_secs()),
                    RecvTimeoutError::Disconnected => self.end_told(),
                };
                let _ = self.child.kill();
                Answer::Failed { reason }
            }
        }
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request, limit: Duration) -> Answer {
        self.send(request);
        self.receive(limit)
    }

    /// Lets it end by itself, as programs do.
    pub(crate) fn dismiss(&mut self) {
        self.requests = None;
    }

    /// Lets it end by itself and waits for that.
    pub(crate) fn finish(mut self, limit: Duration) {
        self.dismiss();
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// How it ended, with the last that it said.
    fn end_told(&mut self) -> String {
        let how =
            self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let log = self.log.as_ref().and_then(|log| std::fs::read(log).ok()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        match log.lines().map(str::trim).rfind(|line| !line.is_empty()) {
            Some(line) => format!("the process ended ({how}): {line}"),
            None => format!("the process ended ({how})"),
        }
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> (Participant, NamedTempFile) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let log = NamedTempFile::new().unwrap();
        let participant = Participant::start(command, Some(log.path())).unwrap();
        assert!(participant.id() > 0);
        (participant, log)
    }

    #[test]
    fn answers_are_read_and_other_lines_are_not() {
        let (mut participant, _log) =
            shell(r#"read line; echo noise; echo '{"is": "ready"}'; read line"#);
        assert_eq!(participant.ask(&Request::Run, LIMIT), Answer::Ready);
        participant.finish(LIMIT);
    }

    #[test]
    fn an_end_is_told_with_the_last_line() {
        let (mut participant, _log) = shell("echo 'out of luck' >&2; exit 3");
        let Answer::Failed { reason } = participant.ask(&Request::Run, LIMIT) else {
            panic!("it answered")
        };
        assert!(reason.contains("out of luck") && reason.contains('3'), "{reason}");
        assert!(!participant.alive());
    }

    #[test]
    fn silence_is_a_failure() {
        let (mut participant, _log) = shell("sleep 60");
        let answer = participant.ask(&Request::Run, Duration::from_millis(20));
        assert!(matches!(answer, Answer::Failed { .. }));
        assert!(!participant.alive());
    }
}
