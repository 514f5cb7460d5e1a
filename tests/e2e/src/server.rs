//! Servers for tests, each on a port of its own.

use crate::{Driver, PATIENCE, dist, inside_folders_of, outboard, within};
use std::borrow::Borrow;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tempfile::TempDir;

/// A server must listen after this time.
const STARTUP: Duration = Duration::from_secs(60);

/// A session has moved after this time.
const TRAVELS: Duration = Duration::from_secs(120);

/// A running `outboard serve`; stopped when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
    /// Where it keeps images and notes, unless it was told otherwise.
    caches: TempDir,
    /// How it is started, but for its address.
    command: Command,
}

/// These flags of a server, which connects to others of this machine by TCP unless they say where
/// it connects.
pub fn reaching_loopback<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let peers: &[&str] = if flags.contains(&"--peers") { &[] } else { &["--peers", "127.0.0.0/8"] };
    [flags, peers].concat()
}

/// A process, where it listens, and its log.
type Started = (Child, String, Arc<Mutex<Vec<String>>>);

impl Server {
    /// Starts a server for the device under test.
    pub fn start() -> Server {
        Server::start_with(&["--driver", Driver::chosen().name()], &[])
    }

    /// Starts a server with these arguments and variables, on a free port. Unless they say so, no
    /// workers wait for clients, sessions end with the server, and images are kept for this server
    /// only.
    pub fn start_with(args: &[&str], env: &[(&str, &str)]) -> Server {
        Server::start_at("127.0.0.1:0", args, env)
    }

    /// The same at this address.
    pub fn start_at(listen: &str, args: &[&str], env: &[(&str, &str)]) -> Server {
        Server::unless_failed(Server::launch(&dist().join("bin/outboard"), listen, args, env))
    }

    /// The same with this program.
    pub fn start_program(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Server {
        Server::start_program_at(program, "127.0.0.1:0", args, env)
    }

    /// The same at this address.
    pub fn start_program_at(
        program: &Path,
        listen: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Server {
        Server::unless_failed(Server::launch(program, listen, args, env))
    }

    fn unless_failed(launched: Result<Server, String>) -> Server {
        launched.unwrap_or_else(|said| panic!("the server did not come up; it said:\n{said}"))
    }

    /// Starts a server, or none if it says that this machine lacks something, with this code.
    /// Panics if it fails otherwise.
    pub fn start_unless_refused(args: &[&str], code: &str) -> Option<Server> {
        match Server::launch(&dist().join("bin/outboard"), "127.0.0.1:0", args, &[]) {
            Ok(server) => Some(server),
            Err(said) => {
                assert!(
                    said.contains(code),
                    "the server failed, but not with {code}; it said:\n{said}"
                );
                None
            }
        }
    }

    fn launch(
        program: &Path,
        listen: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Server, String> {
        let caches = tempfile::tempdir().expect("a folder can be made");
        let records = caches.path().join("records").display().to_string();
        let records: &[&str] =
            if args.contains(&"--records") { &[] } else { &["--records", &records] };
        let warm: &[&str] = if args.contains(&"--warm") { &[] } else { &["--warm", "0"] };
        let drain: &[&str] = if args.contains(&"--drain") { &[] } else { &["--drain", "0"] };
        let mut command = Command::new(program);
        command
            .args(["serve", "--log-format", "json"])
            .args(args)
            .args(warm)
            .args(drain)
            .args(records)
            .env("XDG_CACHE_HOME", caches.path())
            // What the machine's own configuration says is nothing to a test.
            .env("OUTBOARD_CONFIG", "none")
            .envs(env.iter().copied());
        let (child, address, log) = Server::spawn(&mut command, listen)?;
        Ok(Server { child, address, log, caches, command })
    }

    fn spawn(command: &mut Command, listen: &str) -> Result<Started, String> {
        // The address is said last, and anew each time.
        let mut this = Command::new(command.get_program());
        this.args(command.get_args()).args(["--listen", listen]);
        this.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = this
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stderr = BufReader::new(child.stderr.take().expect("standard error is piped"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (send, ready) = mpsc::channel();
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let address = listening_at(&line);
                // Who waits for the address finds the line that says it.
                lines.lock().expect("no thread panics with the log").push(line);
                if let Some(address) = address {
                    let _ = send.send(address);
                }
            }
        });
        let Ok(address) = ready.recv_timeout(STARTUP) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(log.lock().expect("no thread panics with the log").join("\n"));
        };
        Ok((child, address, log))
    }

    /// Asks it to become what now lies where its program lay.
    pub fn ask_to_upgrade(&self) {
        signal(self.id(), rustix::process::Signal::USR2);
    }

    /// Waits until it has become another program this often, and panics if it does not in time.
    /// What a command was told by the next program may be here before that program's line of the
    /// log, which a thread reads.
    #[track_caller]
    pub fn expect_upgrades(&self, times: u64) {
        assert!(within(PATIENCE, || self.upgrades() == times), "{times} upgrades: {}", self.log());
    }

    /// How often it has become another program, by the lines of its log that have been read.
    pub fn upgrades(&self) -> u64 {
        // Who is not root may not look into it.
        let log = self.log();
        let serving =
            log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let serving = serving.filter(|entry| entry["fields"]["message"] == "serving");
        serving.filter_map(|entry| entry["fields"]["upgrades"].as_u64()).max().unwrap_or(0)
    }

    /// Ends it as nothing else does: SIGKILL. Its workers are left to themselves.
    pub fn kill(&mut self) {
        signal(self.id(), rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }

    /// Starts it again at the same address, with the same settings.
    pub fn start_again(&mut self) {
        let address = self.address.clone();
        let (child, address, log) = Server::spawn(&mut self.command, &address)
            .unwrap_or_else(|said| panic!("the server did not come up again; it said:\n{said}"));
        (self.child, self.address, self.log) = (child, address, log);
    }

    /// Folders and files that belong to sessions which the next server could go on with.
    pub fn records(&self) -> Vec<PathBuf> {
        inside_folders_of(&self.caches.path().join("records"))
    }

    /// Where it listens, HOST:PORT.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How many devices it offers.
    ///
    /// # Panics
    /// If it does not list them.
    pub fn devices(&self) -> usize {
        let said = outboard(&["devices", "--json", "--server", self.address()]);
        let listing: serde_json::Value =
            serde_json::from_slice(&said.stdout).expect("devices are listed as JSON");
        listing["devices"].as_array().map_or(0, Vec::len)
    }

    /// The processes that serve clients now.
    pub fn workers(&self) -> Vec<u32> {
        processes_below(self.id())
    }

    /// The one worker; waits for it.
    pub fn only_worker(&self) -> u32 {
        let mut seen = Vec::new();
        let one = within(Duration::from_secs(20), || {
            seen = self.workers();
            seen.len() == 1
        });
        assert!(one, "one worker, not {seen:?}");
        seen[0]
    }

    /// Waits until the only session's commands travel by this, as its administrator sees it, and
    /// panics if they do not.
    #[track_caller]
    pub fn travels_by(&self, transport: &str) {
        let mut found = String::new();
        let is_so = within(TRAVELS, || {
            let listed = outboard(&["sessions", "--json", "--server", self.address()]);
            let listed: serde_json::Value =
                serde_json::from_slice(&listed.stdout).unwrap_or_default();
            found = listed["sessions"][0]["transport"].as_str().unwrap_or_default().to_owned();
            found == transport
        });
        assert!(is_so, "the session travels by `{found}`, not `{transport}`:\n{}", self.log());
    }

    /// Its log so far, one JSON object a line.
    pub fn log(&self) -> String {
        self.log.lock().expect("no thread panics with the log").join("\n")
    }

    /// Waits until its log contains this, and panics if it does not in time: who has seen what the
    /// server did may be before the thread that reads its log.
    #[track_caller]
    pub fn expect_logged(&self, text: &str) {
        assert!(
            within(PATIENCE, || self.log().contains(text)),
            "not logged: {text}\n{}",
            self.log()
        );
    }

    /// Asks it to stop.
    pub fn ask_to_stop(&self) {
        signal(self.id(), rustix::process::Signal::TERM);
    }

    /// Asks it to stop and returns how it ended; `None` if it does not end in time.
    pub fn terminate(&mut self) -> Option<ExitStatus> {
        self.ask_to_stop();
        self.ended(Duration::from_secs(20))
    }

    /// How it ended; `None` if it does not end in time.
    pub fn ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        within(limit, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        status
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.terminate().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn signal(process: u32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(process as i32) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The address in the log line that says the server is up.
fn listening_at(line: &str) -> Option<String> {
    let entry: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = entry.get("fields")?;
    (fields.get("message")? == "serving")
        .then(|| fields.get("address")?.as_str().map(str::to_owned))?
}

/// The list of servers that `--server` takes.
pub fn list<S: Borrow<Server>>(servers: &[S]) -> String {
    servers.iter().map(|server| server.borrow().address()).collect::<Vec<_>>().join(",")
}

/// The living children of a process.
pub fn processes_below(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.filter(|process| living(*process) == Some(parent)).collect()
}

/// Whether a process is there and has not ended. One that has, but whose parent has not asked how,
/// is not.
pub fn is_alive(process: u32) -> bool {
    living(process).is_some()
}

/// The parent of a process that has not ended.
fn living(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name in parentheses: state, parent.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.next()?.parse().ok() }
}
