//! Runs of the test programs.

use crate::{Driver, Folder, PATIENCE, Server, dist, outboard, programs};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A run of the suite, from `suite.tsv`.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    program: String,
    libraries: Option<PathBuf>,
    args: Vec<String>,
}

/// All runs of the suite.
pub fn suite() -> Vec<Case> {
    let path = programs().join("suite.tsv");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let case = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut field = || fields.next().unwrap_or_default();
        let (name, program, libraries, args) = (field(), field(), field(), field());
        Case {
            name,
            program,
            libraries: (libraries != "-").then(|| programs().join(libraries)),
            args: args.split_whitespace().map(str::to_owned).collect(),
        }
    };
    text.lines().map(case).collect()
}

impl Case {
    /// The program, not started yet.
    pub fn program(&self) -> Program {
        let mut program = Program::new(&self.program);
        program.args = self.args.clone();
        program.libraries = self.libraries.clone();
        program
    }
}

/// A test program with its arguments and surroundings.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    args: Vec<String>,
    libraries: Option<PathBuf>,
    env: BTreeMap<String, String>,
    /// What runs it through a server: a command and its arguments.
    under: Vec<String>,
    limit: Duration,
}

/// The way that programs take unless a test says otherwise: TCP, or what `OUTBOARD_E2E_TRANSPORT`
/// names.
fn transport() -> String {
    std::env::var("OUTBOARD_E2E_TRANSPORT").unwrap_or_else(|_| "tcp".to_owned())
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// From start to end.
    pub taken: Duration,
}

impl Outcome {
    /// Panics with the output unless the program ended well.
    pub fn expect_success(&self, what: &str) {
        assert!(self.status.success(), "{what}: {}\n{}{}", self.status, self.stdout, self.stderr);
    }
}

impl Program {
    /// A compiled program of `tests/programs`.
    pub fn new(name: &str) -> Program {
        Program {
            name: name.to_owned(),
            args: Vec::new(),
            libraries: None,
            env: BTreeMap::new(),
            under: Vec::new(),
            limit: PATIENCE,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: &str) -> Program {
        self.args.push(arg.to_owned());
        self
    }

    /// It may take so long, instead of [`PATIENCE`].
    pub fn at_most(mut self, limit: Duration) -> Program {
        self.limit = limit;
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: &str) -> Program {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Has another command run it through a server.
    pub fn under(mut self, command: &[&str]) -> Program {
        self.under = command.iter().map(|&part| part.to_owned()).collect();
        self
    }

    /// Runs it on the device itself: the software device or NVIDIA's driver as its `libcuda.so.1`.
    pub fn directly(&self) -> Outcome {
        self.start_directly().finish()
    }

    /// Runs it through a server with `outboard run`.
    pub fn through(&self, server: &Server) -> Outcome {
        self.start_through(server).finish()
    }

    /// Runs it through a server, and returns what the client library counted.
    pub fn statistics(&self, server: &Server) -> serde_json::Value {
        self.statistics_of_list(server.address())
    }

    /// As [`Program::statistics`], with the devices of a list.
    pub fn statistics_of_list(&self, list: &str) -> serde_json::Value {
        let folder = Folder::create();
        let file = folder.path("statistics.json");
        self.clone().env("OUTBOARD_PROFILE", &file).through_list(list).expect_success(&self.name);
        let text = std::fs::read(&file).expect("the client library wrote its statistics");
        serde_json::from_slice(&text).expect("the statistics are JSON")
    }

    /// Starts it with the client library and no `outboard run`: the variables of its environment
    /// say the rest.
    pub fn with_library(&self) -> Outcome {
        let mut command = Command::new(programs().join(&self.name));
        command.args(&self.args).env("LD_LIBRARY_PATH", dist().join("lib/outboard/client"));
        self.start(command).finish()
    }

    /// Starts it on the device itself.
    pub fn start_directly(&self) -> Running {
        let mut command = Command::new(programs().join(&self.name));
        command.args(&self.args);
        let device = match Driver::chosen() {
            Driver::Cpu => Some(dist().join("lib/outboard/cpu")),
            Driver::Nvidia => None,
        };
        let folders: Vec<String> = device
            .iter()
            .chain(&self.libraries)
            .map(|folder| folder.display().to_string())
            .collect();
        if !folders.is_empty() {
            command.env("LD_LIBRARY_PATH", folders.join(":"));
        }
        self.start(command)
    }

    /// Runs it with the devices of a list, HOST:PORT/INDEX,….
    pub fn through_list(&self, list: &str) -> Outcome {
        self.start_through_list(list).finish()
    }

    /// Starts it through a server.
    pub fn start_through(&self, server: &Server) -> Running {
        self.start_through_list(server.address())
    }

    /// Starts it with the devices of a list.
    pub fn start_through_list(&self, list: &str) -> Running {
        let outboard = dist().join("bin/outboard");
        let mut command = match self.under.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(outboard);
                command
            }
            None => Command::new(outboard),
        };
        command
            .args(["run", "--server", list, "--"])
            .arg(programs().join(&self.name))
            .args(&self.args);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.env("OUTBOARD_TRANSPORT", transport());
        self.start(command)
    }

    /// The same through memory that the program shares with its worker.
    pub fn sharing_memory(self) -> Program {
        self.env("OUTBOARD_TRANSPORT", "shm")
    }

    fn start(&self, mut command: Command) -> Running {
        command.envs(&self.env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", self.name));
        let mut stderr = child.stderr.take().expect("standard error is piped");
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // What was read until an error is still worth showing.
            let _ = stderr.read_to_end(&mut text);
            let _ = send.send(String::from_utf8_lossy(&text).into_owned());
        });
        let stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
        Running {
            name: self.name.clone(),
            child,
            stdout,
            seen: String::new(),
            stderr: receive,
            limit: self.limit,
            started: Instant::now(),
        }
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    stdout: BufReader<ChildStdout>,
    seen: String,
    stderr: mpsc::Receiver<String>,
    limit: Duration,
    started: Instant,
}

impl Running {
    /// Its process. `outboard run` becomes the program, so this is the program's own.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of output that is `wanted`.
    pub fn wait_for_line(&mut self, wanted: &str) {
        let _watchdog = Watchdog::new(self.child.id(), self.limit);
        let mut line = String::new();
        while self.stdout.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            self.seen.push_str(&line);
            if line.trim_end() == wanted {
                return;
            }
            line.clear();
        }
        panic!("{} ended without saying {wanted:?}; it said {:?}", self.name, self.seen);
    }

    /// What it has been seen to say.
    pub fn seen(&self) -> &str {
        &self.seen
    }

    /// Ends it as nothing else does: SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for its end; kills it, and panics, when it takes longer than any run should.
    pub fn finish(mut self) -> Outcome {
        let watchdog = Watchdog::new(self.child.id(), self.limit);
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).expect("the program's output can be read");
        let status = self.child.wait().expect("a child can be waited for");
        let taken = self.started.elapsed();
        let stdout = std::mem::take(&mut self.seen) + &String::from_utf8_lossy(&rest);
        let stderr = self.stderr.recv().unwrap_or_default();
        assert!(
            !watchdog.barked(),
            "{} did not end within {:?}\n{stdout}{stderr}",
            self.name,
            self.limit
        );
        Outcome { status, stdout, stderr, taken }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a process that takes too long, so that whoever reads from it goes on.
struct Watchdog {
    done: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<bool>>,
}

impl Watchdog {
    fn new(process: u32, limit: Duration) -> Watchdog {
        let (done, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let late = ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if late && let Some(pid) = rustix::process::Pid::from_raw(process as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            late
        });
        Watchdog { done: Some(done), thread: Some(thread) }
    }

    fn barked(mut self) -> bool {
        drop(self.done.take());
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(true))
    }
}

/// Gives programs a token of servers with this state, and the servers' fingerprint.
///
/// # Panics
/// If the command makes no token.
pub fn known_to(state: &str) -> impl Fn(Program) -> Program {
    let made = outboard(&["token", "create", "--json", "--state", state, "--owner", "alice"]);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = move |name: &str| made[name].as_str().expect("a text").to_owned();
    move |program| {
        program
            .env("OUTBOARD_TOKEN", &part("token"))
            .env("OUTBOARD_TLS_FINGERPRINT", &part("fingerprint"))
    }
}
