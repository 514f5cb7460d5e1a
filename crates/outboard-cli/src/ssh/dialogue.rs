//! What this command and the shell on the server's machine say to each other.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_client::invitation::Invitation;
use outboard_wire::Code;

use super::connection::Connection;
use super::release::Release;
use crate::failure::Failure;
use crate::progress::Progress;

/// What lines begin with that are meant for this command: shells may greet people.
pub(crate) const MARK: &str = "outboard-ssh: ";

/// What the shell does.
const SCRIPT: &str = include_str!("script.sh");

/// How many lines of a shell's greeting are passed over.
const GREETINGS: usize = 10_000;
/// The longest line, and the most of what a server says when it does not start.
const LONGEST: u64 = 64 << 10;

/// The process that keeps a server, which ends with it.
pub(super) struct Shell {
    /// Its standard input is the server's.
    _ssh: Child,
    /// Whether nobody wants the server any more.
    is_over: Arc<AtomicBool>,
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// Starts a server there; the process that keeps it, and how it is known.
pub(super) fn start(
    connection: &Connection,
    release: &Release,
    driver: &str,
    direct: bool,
) -> Result<(Shell, Invitation), Failure> {
    let there = &connection.destination;
    let mut shell = connection.shell()?;
    let listen = if direct { "auto" } else { "127.0.0.1" };
    let variables = [
        ("machine", std::env::consts::ARCH),
        ("release", &release.name()),
        ("sums", &release.sums()),
        ("parts", &release.parts()),
        ("driver", driver),
        ("listen", listen),
    ];
    let variables = variables.map(|(name, value)| format!("{name}={}\n", quoted(value))).concat();
    // If it cannot be written, the shell has ended, and what it has said says why.
    let _ = say(&mut shell, |input| input.write_all((variables + SCRIPT).as_bytes()));
    let mut heard = BufReader::new(shell.stdout.take().ok_or_else(|| silent(there))?);
    let mut is_sent = false;
    loop {
        let reply = next(&mut heard).ok_or_else(|| silent(there))?;
        match reply.split_once(' ').unwrap_or((&reply, "")) {
            ("want", _) if !is_sent => {
                is_sent = true;
                let bytes = release.bytes();
                let what = format!("copying this release to {there}");
                let progress = Progress::of_bytes(&what, bytes);
                let _ = say(&mut shell, |input| release.send(&mut progress.counted(input)));
            }
            ("ready", told) => {
                let told = told.parse().map_err(|error| {
                    let message = format!("the server at {there} says where it is in a way this program does not understand: {error}");
                    Failure::new(Code::ServerStart, message, HELP)
                })?;
                let shell = Shell { _ssh: shell, is_over: Arc::default() };
                watch(there.clone(), heard, Arc::clone(&shell.is_over));
                return Ok((shell, told));
            }
            other => return Err(refusal(there, other, &mut heard, "did not start")),
        }
    }
}

const HELP: &str = "`outboard doctor serve` checks a machine as a server";

/// Writes to the shell's input.
fn say(
    shell: &mut Child,
    what: impl FnOnce(&mut std::process::ChildStdin) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let input = shell.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
    what(input)?;
    input.flush()
}

/// Says when the server has ended, or the connection, before this process has.
fn watch(there: String, mut heard: BufReader<ChildStdout>, is_over: Arc<AtomicBool>) {
    // Without the thread nothing is said.
    let _ = std::thread::Builder::new().name("ssh".to_owned()).spawn(move || {
        let why = match next(&mut heard) {
            Some(reply) => {
                let reply = reply.split_once(' ').unwrap_or((&reply, ""));
                refusal(&there, reply, &mut heard, "has ended").to_string()
            }
            None => {
                format!("the connection to {there} has ended, and the server there ends with it")
            }
        };
        if !is_over.load(Ordering::Acquire) {
            eprintln!("outboard: {why}");
        }
    });
}

/// The next line that is meant for this command; none if there is no more, or nothing but others.
fn next(heard: &mut BufReader<ChildStdout>) -> Option<String> {
    for _ in 0..GREETINGS {
        let mut line = Vec::new();
        if heard.by_ref().take(LONGEST).read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(reply) = line.trim_end().strip_prefix(MARK) {
            return Some(reply.to_owned());
        }
    }
    None
}

/// Why there is no server, or none any more.
fn refusal(
    there: &str,
    (what, more): (&str, &str),
    heard: &mut BufReader<ChildStdout>,
    what_has_happened: &str,
) -> Failure {
    if what == "no_gpu" {
        let message = format!(
            "there is no NVIDIA GPU to offer at {there}: neither its driver's devices nor \
             libcuda.so.1 are there, so nothing was copied"
        );
        let help = "OUTBOARD_SSH_DRIVER=cpu serves the software device there";
        return Failure::new(Code::NoGpu, message, help);
    }
    let (message, help) = match what {
        "machine" => (
            format!(
                "{there} is a machine of another kind ({more}); this release is for Linux {}",
                std::env::consts::ARCH
            ),
            "install Outboard for it there, start `outboard serve`, and name that server",
        ),
        "missing" => (
            format!("{there} has no `{more}`, which is needed to start a server there"),
            "install it there (GNU coreutils, findutils and sed, or busybox, have all that is needed)",
        ),
        "failed" => (
            format!("no server was started at {there}: {more}"),
            "make room there, or set XDG_CACHE_HOME there (in ~/.ssh/environment or by SetEnv) to a folder that can be written to",
        ),
        "ended" => {
            let mut said = String::new();
            let _ = heard.by_ref().take(LONGEST).read_to_string(&mut said);
            let said = said.trim();
            match more {
                "126" => (
                    format!(
                        "the release was copied to {there} and cannot be executed there: {said}"
                    ),
                    "the file system of the cache may be mounted noexec: set XDG_CACHE_HOME there (in ~/.ssh/environment or by SetEnv) to another one",
                ),
                _ => (
                    format!(
                        "the server at {there} {what_has_happened} (status {more}); it said:\n{said}"
                    ),
                    HELP,
                ),
            }
        }
        _ => (format!("the shell at {there} gives an unexpected answer: `{what} {more}`"), HELP),
    };
    Failure::new(Code::ServerStart, message, help)
}

fn silent(there: &str) -> Failure {
    let message =
        format!("no server was started at {there}: its shell has ended without an answer");
    let help = "what ssh has said stands above; a POSIX shell `sh` is needed there, and a login that may run commands";
    Failure::new(Code::SshFailed, message, help)
}

/// A word for a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn words_reach_the_shell_as_they_are() {
        for text in ["", "a b", "it's", "$(x) `y` \\ \"z\"", "a\nb"] {
            let line = format!("printf %s {}", quoted(text));
            let said = Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), text);
        }
    }

    /// The script is read from a pipe, and what it does not read is left for the server.
    #[test]
    fn another_kind_of_machine_is_named() {
        let mut shell =
            Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        say(&mut shell, |input| input.write_all(format!("machine=pdp11\n{SCRIPT}").as_bytes()))
            .unwrap();
        let mut heard = BufReader::new(shell.stdout.take().unwrap());
        let reply = next(&mut heard).unwrap();
        let failure =
            refusal("ssh://old", reply.split_once(' ').unwrap(), &mut heard, "did not start");
        assert!(failure.to_string().contains("another kind (Linux "), "{failure}");
        assert!(next(&mut heard).is_none() && shell.wait().unwrap().success());
    }
}
