//! Runs checks that might crash, hang or change the process in a child.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How a process ended, and what it said.
pub(super) struct Ended {
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// Why it is of no use, if it is not.
    pub(super) fn problem(&self, limit: Duration) -> Option<String> {
        match self.status {
            None => Some(format!("it had not ended after {} s", limit.as_secs())),
            Some(status) if !status.success() => {
                let last = self.stderr.lines().rev().find(|line| !line.trim().is_empty());
                Some(last.map_or_else(|| format!("it ended with {status}"), str::to_owned))
            }
            Some(_) => None,
        }
    }
}

/// This program, with a hidden command of its own.
pub(super) fn this_program(command: &str) -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg(command);
    program
}

/// Runs a process to its end, or kills it when the time is up.
pub(super) fn run(command: &mut Command, limit: Duration) -> std::io::Result<Ended> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = wait(&mut child, limit)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    let text = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Ended { status, stdout: text(stdout), stderr: text(stderr) })
}

fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() > deadline {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // The output before an error is all there is.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_hangs_is_ended() {
        let limit = Duration::from_millis(50);
        let ended = run(Command::new("sleep").arg("600"), limit).unwrap();
        assert!(ended.problem(limit).is_some_and(|problem| problem.contains("not ended")));
        let ended =
            run(Command::new("sh").args(["-c", "echo no >&2; exit 3"]), Duration::from_secs(60))
                .unwrap();
        assert_eq!(ended.problem(limit).as_deref(), Some("no"));
        let ended = run(Command::new("echo").arg("yes"), Duration::from_secs(60)).unwrap();
        assert!(ended.problem(limit).is_none() && ended.stdout == "yes\n");
    }
}
