//! The parts this program plays, and how the scenarios reach them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command as Process, ExitCode, Stdio};
use std::time::{Duration, Instant};

use super::device::Device;
use outboard_client::link::{Choice, Config as LinkConfig, ConnectError, Link};
use outboard_supervisor::admin::beside;
use outboard_supervisor::auth;
use outboard_supervisor::standing::{Folder, Program};
use outboard_supervisor::vsock::Place;
use outboard_supervisor::warm::Bounds;
use outboard_supervisor::{Config, Socket, WorkerCommand};
use outboard_transport::Any;
use outboard_wire::handshake::{Hello, Purpose, Refusal, RefusalCode, VERSION, Welcome};
use outboard_wire::window::Window;
use outboard_wire::{ContextId, Writer};
use outboard_worker::sandbox::Sandbox;
use outboard_worker::{Build, Command, Handler, Replier, Start, Warm};

/// Only keeps a broken server from hanging the suite.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What the test worker can do.
pub(crate) const ECHO: u16 = 1;
/// Answers from a helper thread, once the next command has been answered.
pub(crate) const LATER: u16 = 2;
/// Keeps the dispatcher busy for ever.
pub(crate) const STUCK: u16 = 3;
pub(crate) const PANIC: u16 = 4;
pub(crate) const PANIC_IN_HELPER: u16 = 5;
/// Closes its socket to the supervisor.
pub(crate) const TURN_AWAY: u16 = 30;
/// Takes a number into account.
pub(crate) const COUNT: u16 = 6;
/// Answers how many there were, their sum, and whether those of each million came in order.
pub(crate) const COUNTED: u16 = 7;

/// Answers as calls are answered, with work to be done before the answer is written that takes
/// [`WORK`].
pub(crate) const AFTER_WORK: u16 = 8;
pub(crate) const WORK: Duration = Duration::from_millis(200);
/// Does what a worker may do that its client controls: connects to a Unix socket (its path, and a
/// zero), says the rest, and answers what it hears.
pub(crate) const SAY: u16 = 10;
/// As [`ECHO`], and succeeds.
pub(crate) const RETURN: u16 = 9;

/// Device lists that make the test worker fail to start.
pub(crate) const NO_SUCH_DEVICE: u32 = 99;
pub(crate) const CRASH: u32 = 98;
pub(crate) const HANG: u32 = 97;

/// What the parts log, for whoever looks for a mistake; errors unless set.
const LOG: &str = "OUTBOARD_SERVING_LOG";
/// Variables that tell the test supervisor where to listen, ...
pub(crate) const LISTEN: &str = "OUTBOARD_SERVING_LISTEN";
/// ... where to note its sessions, ...
pub(crate) const RECORDS: &str = "OUTBOARD_SERVING_RECORDS";
/// ... what to become when it is asked to, unless that is this program, ...
pub(crate) const PROGRAM: &str = "OUTBOARD_SERVING_PROGRAM";
/// ... the socket of a hypervisor that forwards vsock there, ...
pub(crate) const VSOCK: &str = "OUTBOARD_SERVING_VSOCK";
/// ... and for how many seconds sessions wait for the next server.
pub(crate) const OUTLIVE: &str = "OUTBOARD_SERVING_OUTLIVE";

/// The port of vsock that is forwarded.
pub(crate) const VSOCK_PORT: u32 = 9470;

/// Limits of the test supervisor.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_millis(1500);
pub(crate) const MAX_HELLOS: usize = 80;
pub(crate) const MAX_SESSIONS: usize = 70;

#[derive(Default)]
struct TestHandler {
    device: Device,
    later: Option<(u64, Replier)>,
    counted: (u64, u64),
    last: [u64; 4],
    disorder: bool,
    work: bool,
}

impl Handler for TestHandler {
    fn snapshot(&mut self) -> Vec<u8> {
        std::process::id().to_le_bytes().to_vec()
    }

    fn answering(&mut self) {
        if std::mem::take(&mut self.work) {
            std::thread::sleep(WORK);
        }
    }

    fn command(&mut self, command: Command<'_>, replier: &Replier) {
        match command.op {
            ECHO => {
                replier.reply(command.seq, 5, |writer| writer.fixed(command.payload)).unwrap();
                if let Some((seq, replier)) = self.later.take() {
                    std::thread::spawn(move || replier.reply(seq, 6, |writer| writer.str("later")));
                }
            }
            RETURN => {
                replier.reply(command.seq, 0, |writer| writer.fixed(command.payload)).unwrap();
            }
            SAY => {
                let heard = say(command.payload);
                replier.reply(command.seq, 0, |writer| writer.fixed(&heard)).unwrap();
            }
            COUNT => {
                let number = u64::from_le_bytes(command.payload.try_into().unwrap());
                let last = &mut self.last[(number / 1_000_000) as usize % 4];
                self.disorder |= number <= *last;
                *last = number;
                self.counted = (self.counted.0 + 1, self.counted.1 + number);
            }
            COUNTED => {
                let (counted, order) = (self.counted, u64::from(!self.disorder));
                let encode = |writer: &mut Writer| {
                    [counted.0, counted.1, order].iter().for_each(|n| writer.u64(*n))
                };
                replier.reply(command.seq, 0, encode).unwrap();
            }
            AFTER_WORK => {
                self.work = true;
                replier.clone().reply(command.seq, 0, |_| ()).unwrap();
            }
            LATER => self.later = Some((command.seq, replier.clone())),
            STUCK => loop {
                std::thread::park();
            },
            TURN_AWAY => {
                turn_away();
                replier.reply(command.seq, 0, |_| ()).unwrap();
            }
            PANIC => panic!("on purpose, in the dispatcher"),
            PANIC_IN_HELPER => {
                std::thread::spawn(|| panic!("on purpose, in a helper"));
            }
            _ if self.device.command(&command, replier) => {}
            _ => replier.reply(command.seq, 801, |_| ()).unwrap(),
        }
    }
}

/// What a process hears at a Unix socket: first the path, behind a zero what it says there.
pub(crate) fn say(what: &[u8]) -> Vec<u8> {
    let end = what.iter().position(|byte| *byte == 0).expect("a path");
    let path = std::str::from_utf8(&what[..end]).expect("a path");
    let mut stream = std::os::unix::net::UnixStream::connect(path).expect("it may connect");
    // Who is refused may see the socket closed first.
    let _ = stream.write_all(&what[end + 1..]);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    heard
}

/// How this program starts as a worker; with `true`, it dies when it is to get warm.
struct TestWorker(bool);

impl Build for TestWorker {
    type Prepared = ();
    type Handler = TestHandler;

    fn prepare(self, warm: Option<&Warm>, _: Option<Window>) -> Result<(), Refusal> {
        if self.0 && warm.is_some() {
            std::process::exit(9);
        }
        Ok(())
    }

    fn snapshot((): &()) -> Vec<u8> {
        TestHandler::default().snapshot()
    }

    fn build((): (), start: &Start) -> Result<TestHandler, Refusal> {
        if start.devices.contains(&NO_SUCH_DEVICE) {
            return Err(Refusal {
                code: RefusalCode::NoDevice,
                sentence: "there is no device 99".to_owned(),
            });
        }
        if start.devices.contains(&CRASH) {
            std::process::exit(7);
        }
        while start.devices.contains(&HANG) {
            std::thread::park();
        }
        Ok(TestHandler::default())
    }
}

pub(crate) fn worker(dies_warm: bool) -> ExitCode {
    outboard_supervisor::logs::init_from_env();
    outboard_worker::run(&Sandbox::none(), TestWorker(dies_warm))
}

/// Shuts the one socket of this process that keeps messages apart.
fn turn_away() {
    use rustix::net::{Shutdown, SocketType, shutdown, sockopt::socket_type};
    use std::os::fd::BorrowedFd;
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    for number in open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        // SAFETY: whether it is open is what is asked; it lives for the two calls only.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let listens = || rustix::net::sockopt::socket_acceptconn(descriptor).unwrap_or(false);
        if socket_type(descriptor).is_ok_and(|kind| kind == SocketType::SEQPACKET) && !listens() {
            shutdown(descriptor, Shutdown::Both).unwrap();
        }
    }
}

/// So many workers wait; if `dies_warm`, they only try to. Sessions may go on for `drain` when it
/// stops.
pub(crate) fn supervisor(warm: Bounds, dies_warm: bool, drain: Duration) -> ExitCode {
    outboard_supervisor::logs::init(outboard_supervisor::logs::Format::Text);
    let mut config = Config::new(
        "127.0.0.1:0",
        WorkerCommand::this_program(["worker", if dies_warm { "dies" } else { "" }]),
    );
    config.warm = warm;
    config.hello_timeout = HELLO_TIMEOUT;
    config.start_timeout = Duration::from_secs(20);
    config.standing.drain = drain;
    let set = |name: &str| std::env::var(name).ok();
    if let Some(address) = set(LISTEN) {
        config.listen = address;
    }
    if let Some(folder) = set(RECORDS) {
        config.standing.records = Folder::At(folder.into());
    }
    if let Some(socket) = set(VSOCK) {
        config.guests = vec![Place::Forwarded { socket: socket.into(), port: VSOCK_PORT }];
        config.auth.allow_anonymous = true;
    }
    let path = set(PROGRAM).map_or_else(|| std::env::current_exe().unwrap(), Into::into);
    let check = vec!["serving".into(), "check".into()];
    config.standing.program =
        Some(Program { path, arguments: std::env::args_os().collect(), check });
    config.standing.outlive =
        set(OUTLIVE).map(|seconds| Duration::from_secs(seconds.parse().expect("seconds")));
    config.max_hellos = MAX_HELLOS;
    config.max_sessions = MAX_SESSIONS;
    config.socket = Socket::At(socket(std::process::id()).into());
    config.admin = Socket::At(beside(&PathBuf::from(socket(std::process::id()))));
    tell_and_serve(config)
}

/// One whose connections are encrypted, with its state in that folder.
pub(crate) fn tls_supervisor(state: std::path::PathBuf) -> ExitCode {
    outboard_supervisor::logs::init(outboard_supervisor::logs::Format::Text);
    let mut config = Config::new("127.0.0.1:0", WorkerCommand::this_program(["worker", ""]));
    config.auth =
        auth::Config { tls: auth::Tls::On, state: Some(state), ..auth::Config::default() };
    tell_and_serve(config)
}

fn tell_and_serve(mut config: Config) -> ExitCode {
    if let Ok(grace) = std::env::var("OUTBOARD_TEST_GRACE") {
        let mut times = grace.split(',').map(|time| Duration::from_millis(time.parse().unwrap()));
        (config.resume.grace, config.resume.closed_grace) =
            (times.next().unwrap(), times.next().unwrap());
        config.resume.keepalive = times.next().unwrap_or(config.resume.keepalive);
    }
    config.on_ready = Some(Box::new(|address| {
        let mut out = std::io::stdout();
        writeln!(out, "{address}").unwrap();
        out.flush().unwrap();
    }));
    outboard_supervisor::serve(config).unwrap();
    ExitCode::SUCCESS
}

/// The Unix socket of the test supervisor that is this process.
pub(crate) fn socket(supervisor: u32) -> String {
    std::env::temp_dir()
        .join(format!("outboard-serving-{supervisor}.sock"))
        .to_str()
        .unwrap()
        .to_owned()
}

/// A client that waits for a reply that never comes. It tells its worker's process first.
pub(crate) fn client(address: &str, choice: Choice) -> ExitCode {
    let (link, worker) = connect_by(choice, address, vec![]).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "{worker}").unwrap();
    out.flush().unwrap();
    link.call(STUCK, ContextId::NONE, |_| ()).unwrap();
    ExitCode::SUCCESS
}

/// A client that ends as programs do. It tells its worker's process first.
pub(crate) fn leaving_client(address: &str) -> ExitCode {
    let (link, worker) = connect(address, vec![]).unwrap();
    println!("{worker}");
    link.call(ECHO, ContextId::NONE, |_| ()).unwrap();
    // As the link of a library is, which nobody drops.
    std::mem::forget(link);
    ExitCode::SUCCESS
}

/// This program in another part, killed at the end.
pub(crate) struct Part {
    pub(crate) child: Child,
    pub(crate) first_line: String,
    _out: BufReader<ChildStdout>,
}

impl Part {
    /// Starts it and reads the first line it writes.
    pub(crate) fn start(args: &[&str]) -> Part {
        Part::start_with(args, &[])
    }

    /// The same with variables.
    pub(crate) fn start_with(args: &[&str], env: &[(&str, &str)]) -> Part {
        let program = std::env::current_exe().unwrap();
        let mut child = Process::new(program)
            .args(args)
            .env("OUTBOARD_LOG", std::env::var(LOG).as_deref().unwrap_or("error"))
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first_line = String::new();
        out.read_line(&mut first_line).unwrap();
        Part { child, first_line: first_line.trim().to_owned(), _out: out }
    }

    /// The living processes that it has started.
    pub(crate) fn children(&self) -> Vec<u32> {
        let parent = self.child.id().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let is_child = |process: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
            fields.next() != Some("Z") && fields.next() == Some(parent.as_str())
        };
        processes
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(is_child)
            .collect()
    }

    pub(crate) fn signal(&self, signal: i32) {
        kill(self.child.id(), signal);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A supervisor that was killed leaves it.
        for file in ["sock", "admin.sock", "admin.secret"] {
            let _ = std::fs::remove_file(socket(self.child.id()).replace("sock", file));
        }
    }
}

pub(crate) fn serve() -> Part {
    Part::start(&["supervisor"])
}

/// A server that keeps workers ready.
pub(crate) fn serve_warm(warm: usize) -> Part {
    Part::start(&["supervisor", &warm.to_string()])
}

pub(crate) fn hello(purpose: Purpose) -> Hello {
    Hello {
        version: VERSION,
        software: "test".into(),
        client: "serving test".into(),
        purpose,
        process: Default::default(),
        more: Default::default(),
    }
}

/// A session over TCP, and its worker's process.
pub(crate) fn connect(address: &str, devices: Vec<u32>) -> Result<(Link, u32), ConnectError> {
    connect_by(Choice::Tcp, address, devices)
}

/// A session, and its worker's process.
pub(crate) fn connect_by(
    choice: Choice,
    address: &str,
    devices: Vec<u32>,
) -> Result<(Link, u32), ConnectError> {
    connect_with(LinkConfig { transport: choice, ..LinkConfig::default() }, address, devices)
}

/// A session that tries so long to go on when its connection is lost, and its worker's process.
pub(crate) fn connect_trying(
    reconnect: Duration,
    address: &str,
) -> Result<(Link, u32), ConnectError> {
    connect_with(
        LinkConfig { transport: Choice::Tcp, reconnect, ..LinkConfig::default() },
        address,
        vec![],
    )
}

fn connect_with(
    config: LinkConfig,
    address: &str,
    devices: Vec<u32>,
) -> Result<(Link, u32), ConnectError> {
    let config = LinkConfig { timeout: PATIENCE, ..config };
    let hello = hello(Purpose::Session { devices });
    let (link, welcome) = Link::connect(&Any, address, &hello, config, Box::new(|_, _| ()))?;
    Ok((link, process(&welcome)))
}

/// The worker's process, as its snapshot tells.
pub(crate) fn process(welcome: &Welcome) -> u32 {
    u32::from_le_bytes(welcome.snapshot[..].try_into().unwrap())
}

pub(crate) fn kill(process: u32, signal: i32) {
    // SAFETY: kill has no preconditions; the process is one that this test started.
    unsafe { libc::kill(process.cast_signed(), signal) };
}

/// Whether the process is there, other than as a zombie.
pub(crate) fn runs(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: it did not come to this");
        std::thread::sleep(Duration::from_millis(2));
    }
}
