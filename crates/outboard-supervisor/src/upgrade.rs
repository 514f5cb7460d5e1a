//! Replacing this program by another release in the same process, which keeps its listening
//! sockets.
//!
//! The supervisor runs the new program once with `--check`. If that succeeds, it lets clients that
//! are at their hello reach their worker, and becomes the new program (execve), which adopts the
//! sessions as after a restart. Meanwhile clients that connect wait in the queue of the listening
//! sockets. An error before the new program runs leaves the old one as it was.

mod asked;

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use outboard_transport::{VsockAddress, vsock};
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::beats::Beats;
use super::changes::until;
use super::config::Config;
use super::error::ServeError;
use super::pool::Pool;
use super::records;
use super::standing::Program;
use crate::auth;
pub(super) use asked::{Asker, Counter, Step};

/// How long the new program may take to say whether it could serve.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// How long clients that are coming may take to get to their worker; a client that takes longer
/// loses its connection.
pub(super) const SETTLE: Duration = Duration::from_secs(20);
/// Arguments of the new program: the process, how often it has been another program, and the
/// descriptors at which it listens.
const VARIABLE: &str = "OUTBOARD_TAKES_OVER";
/// Arguments of a program that only checks whether it could serve: where the server listens,
/// whatever its settings say.
pub const LISTENS_AT: &str = "OUTBOARD_CHECKS_FOR";
/// And where the server notes its sessions, if it does: the next program looks for them there.
const NOTES_IN: &str = "OUTBOARD_CHECKS_NOTES";
/// What a program that only checks says if it can go on with sessions whose workers want to be
/// shown that it is their server. Releases before did not say it, and could not.
pub const INHERITS: &str = "goes on with sealed sessions";
/// Variables by which systemd passes on descriptors; they were for the first program only.
const FOR_THE_FIRST: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// Signals that must not end the process while they have no handler.
const HANDLED: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGUSR2, libc::SIGHUP];

/// Clients that are on their way to a worker.
#[derive(Default)]
pub(super) struct Coming {
    count: Cell<usize>,
    changed: Notify,
}

impl Coming {
    /// One more, for as long as the result lives.
    pub(super) fn enter(&self) -> impl Drop + '_ {
        struct Entered<'a>(&'a Coming);
        impl Drop for Entered<'_> {
            fn drop(&mut self) {
                self.0.count.set(self.0.count.get() - 1);
                self.0.changed.notify_waiters();
            }
        }
        self.count.set(self.count.get() + 1);
        Entered(self)
    }

    /// Waits until there is none, but not for long.
    pub(super) async fn settle(&self) {
        let none = until(&self.changed, || self.count.get() == 0);
        if timeout(SETTLE, none).await.is_err() {
            tracing::warn!(
                clients = self.count.get(),
                "clients that are still connecting are cut off"
            );
        }
    }
}

/// Has the new program say whether it could serve at the address that this one listens at, and go
/// on with the sessions noted in the folder; the error is its reason. True if it is of a release
/// that knows how to show their workers that it is their server.
pub(super) async fn check(
    program: &Program,
    address: SocketAddr,
    notes: Option<&Path>,
) -> Result<bool, String> {
    let arguments = program.check.get(1..).unwrap_or_default();
    let mut command = Command::new(&program.path);
    command.args(arguments).env_remove(VARIABLE).stdin(Stdio::null()).kill_on_drop(true);
    // What it says becomes part of a sentence.
    command
        .env(LISTENS_AT, address.to_string())
        .envs([("OUTBOARD_LOG", "error"), ("NO_COLOR", "1")]);
    match notes {
        Some(folder) => command.env(NOTES_IN, folder),
        None => command.env_remove(NOTES_IN),
    };
    let output = match timeout(CHECK_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            return Err(format!("{} cannot be started: {error}", program.path.display()));
        }
        Err(_) => {
            let seconds = CHECK_TIMEOUT.as_secs();
            return Err(format!(
                "{} --check takes longer than {seconds} seconds",
                program.path.display()
            ));
        }
    };
    if output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return Ok(said.lines().any(|line| line == INHERITS));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = said.strip_prefix("Error: ").unwrap_or(&said);
    Err(format!(
        "{} could not serve, as its --check says ({}): {said}",
        program.path.display(),
        output.status
    ))
}

/// Whether this process runs that file already.
pub(super) fn is_running(path: &Path) -> bool {
    is_same(path, Path::new("/proc/self/exe"))
}

/// Whether a server with these settings could go on where another one listens, or begin: what can
/// be known without doing it.
pub fn could_serve(config: &Config) -> Result<(), ServeError> {
    let told = std::env::var(LISTENS_AT).ok().and_then(|address| address.parse().ok());
    let resolved = || config.listen.to_socket_addrs().ok()?.next();
    // An address that means nothing now may do so when the server starts.
    let Some(address) = told.or_else(resolved) else { return Ok(()) };
    auth::check(&config.auth, address, &config.guests)?;
    Pool::open(&config.pool)?;
    let state = config.auth.state.as_deref();
    config.pool.broker.as_ref().map(|broker| Beats::new(broker, address, state)).transpose()?;
    match std::env::var_os(NOTES_IN) {
        Some(noted) => would_find_sessions(config, address, Path::new(&noted)),
        None => Ok(()),
    }
}

/// Whether a server with these settings would go on with what another one at its address notes in a
/// folder. Sessions cannot follow it elsewhere: their workers wait at sockets there.
fn would_find_sessions(
    config: &Config,
    address: SocketAddr,
    noted: &Path,
) -> Result<(), ServeError> {
    let place = records::place(&config.standing.records, address);
    if place.as_deref().is_some_and(|place| place == noted || is_same(place, noted)) {
        return Ok(());
    }
    Err(ServeError::OtherRecords { noted: noted.to_owned(), place })
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let which = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    which(one).is_some_and(|file| which(other) == Some(file))
}

/// Descriptors from the program that this process was before, or from systemd.
#[derive(Default)]
pub(super) struct Inherited {
    pub(super) tcp: Option<std::net::TcpListener>,
    unix: Vec<UnixListener>,
    vsock: Vec<OwnedFd>,
    /// How often it has become another program.
    pub(super) upgrades: u64,
}

impl Inherited {
    /// Takes it. To be called once.
    pub(super) fn take() -> Inherited {
        let own = std::process::id();
        let mut inherited = Inherited::default();
        if let Some((upgrades, descriptors)) =
            std::env::var(VARIABLE).ok().and_then(|text| parse(&text, own))
        {
            inherited.upgrades = upgrades;
            descriptors.into_iter().for_each(|descriptor| inherited.add(descriptor));
            return inherited;
        }
        let set = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if set("LISTEN_PID") == Some(own) {
            // systemd's own numbering.
            (3..)
                .take(set("LISTEN_FDS").unwrap_or(0).min(64) as usize)
                .for_each(|descriptor| inherited.add(descriptor));
        }
        inherited
    }

    /// The Unix socket at a path.
    pub(super) fn take_unix(&mut self, path: &Path) -> Option<UnixListener> {
        let is_there = |socket: &UnixListener| {
            socket.local_addr().is_ok_and(|address| address.as_pathname() == Some(path))
        };
        self.unix.iter().position(is_there).map(|at| self.unix.swap_remove(at))
    }

    /// The Unix socket that nobody has taken by its path.
    pub(super) fn take_other_unix(&mut self) -> Option<UnixListener> {
        self.unix.pop()
    }

    /// The socket at an address of vsock.
    pub(super) fn take_vsock(&mut self, address: VsockAddress) -> Option<OwnedFd> {
        let is_there =
            |socket: &OwnedFd| vsock::own_address(socket).is_ok_and(|own| own == address);
        self.vsock.iter().position(is_there).map(|at| self.vsock.swap_remove(at))
    }

    fn add(&mut self, descriptor: RawFd) {
        // SAFETY: whether it is open is what is asked; it lives for the two calls only.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if !rustix::net::sockopt::socket_acceptconn(borrowed).unwrap_or(false)
            || fcntl_setfd(borrowed, FdFlags::CLOEXEC).is_err()
        {
            tracing::warn!(descriptor, "what was passed on is not a socket that listens");
            return;
        }
        // SAFETY: it is open, as was just seen, and meant for this process alone, which takes it
        // once.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        match rustix::net::sockopt::socket_domain(&socket) {
            Ok(rustix::net::AddressFamily::UNIX) => self.unix.push(socket.into()),
            Ok(rustix::net::AddressFamily::VSOCK) => self.vsock.push(socket),
            Ok(_) => self.tcp = Some(socket.into()),
            Err(error) => {
                tracing::warn!(descriptor, %error, "a socket that was passed on cannot be used")
            }
        }
    }
}

/// `PROCESS UPGRADES DESCRIPTOR…`, if it is meant for this process.
fn parse(text: &str, own: u32) -> Option<(u64, Vec<RawFd>)> {
    let mut words = text.split(' ');
    if words.next()?.parse() != Ok(own) {
        return None;
    }
    let upgrades = words.next()?.parse().ok()?;
    Some((upgrades, words.map(|word| word.parse().ok()).collect::<Option<_>>()?))
}

/// Lets signals come that the program before has held back. To be called once they are handled.
pub(super) fn take_signals() {
    mask(libc::SIG_UNBLOCK);
}

fn mask(how: libc::c_int) {
    // SAFETY: a set of signals is filled before it is used; both calls only touch it and this
    // thread's mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in HANDLED {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Becomes the program. Returns only if that cannot be.
pub(super) fn become_program(
    program: &Program,
    upgrades: u64,
    sockets: &[BorrowedFd<'_>],
) -> io::Error {
    let outcome = prepare(program, upgrades, sockets).map(|(path, arguments, variables)| {
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (arguments, variables) = (pointers(&arguments), pointers(&variables));
        // Until the new program handles them, signals wait.
        mask(libc::SIG_BLOCK);
        // SAFETY: texts that end with zero, in lists that end with a null pointer; they live until
        // the call returns, if it does.
        unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
        let error = io::Error::last_os_error();
        mask(libc::SIG_UNBLOCK);
        error
    });
    for socket in sockets {
        let _ = fcntl_setfd(socket, FdFlags::CLOEXEC);
    }
    outcome.unwrap_or_else(|error| error)
}

/// Path, arguments and environment.
type Image = (CString, Vec<CString>, Vec<CString>);

fn prepare(program: &Program, upgrades: u64, sockets: &[BorrowedFd<'_>]) -> io::Result<Image> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
    let mut told = format!("{VARIABLE}={} {upgrades}", std::process::id());
    for socket in sockets {
        fcntl_setfd(socket.as_fd(), FdFlags::empty())?;
        told += &format!(" {}", socket.as_raw_fd());
    }
    let mut variables = vec![text(told.as_bytes())?];
    for (name, value) in std::env::vars_os() {
        if name != VARIABLE && !FOR_THE_FIRST.iter().any(|first| name == *first) {
            variables.push(text(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
    }
    let arguments = program
        .arguments
        .iter()
        .map(|argument| text(argument.as_bytes()))
        .collect::<io::Result<_>>()?;
    Ok((text(program.path.as_os_str().as_bytes())?, arguments, variables))
}

/// Reaps children that have ended and for which no task waits: those of the program before. No
/// others must be there yet.
pub(super) fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::super::command::WorkerCommand;
    use super::super::standing::Folder;
    use super::*;

    #[test]
    fn what_is_passed_on_is_for_one_process() {
        assert_eq!(parse("7 3 10 11", 7), Some((3, vec![10, 11])));
        assert_eq!(parse("7 0", 7), Some((0, vec![])));
        for wrong in ["8 3 10", "7", "7 x 1", "7 1 x", ""] {
            assert_eq!(parse(wrong, 7), None, "{wrong}");
        }
    }

    #[test]
    fn only_sockets_that_listen_are_taken() {
        let mut inherited = Inherited::default();
        inherited.add(RawFd::MAX - 1);
        let file = std::fs::File::open("/dev/null").unwrap();
        inherited.add(file.as_raw_fd());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        inherited.add(std::os::fd::IntoRawFd::into_raw_fd(listener));
        assert!(inherited.take_other_unix().is_none());
        assert_eq!(inherited.tcp.unwrap().local_addr().unwrap(), address);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_program_that_cannot_serve_is_found_out() {
        let program = |path: &str, check: &[&str]| Program {
            path: path.into(),
            arguments: Vec::new(),
            check: check.iter().map(OsString::from).collect(),
        };
        let here = || SocketAddr::from(([127, 0, 0, 1], 9));
        let failed = |said: Result<bool, String>| said.unwrap_err();
        let sh = program("/bin/sh", &["sh", "-c", "echo no device >&2; exit 3"]);
        assert!(failed(check(&sh, here(), None).await).contains("(exit status: 3): no device"));
        assert!(
            failed(check(&program("/nowhere", &["x"]), here(), None).await)
                .contains("cannot be started")
        );
        let told =
            "test $OUTBOARD_CHECKS_FOR = 127.0.0.1:9 && test $OUTBOARD_CHECKS_NOTES = /notes";
        let told = program("/bin/sh", &["sh", "-c", told]);
        assert_eq!(check(&told, here(), Some(Path::new("/notes"))).await, Ok(false));
        let says = format!("echo {INHERITS}");
        let newer = program("/bin/sh", &["sh", "-c", &says]);
        assert_eq!(check(&newer, here(), None).await, Ok(true));
        assert!(check(&told, here(), None).await.is_err());
    }

    #[test]
    fn a_server_that_would_look_for_sessions_elsewhere_may_not_take_over() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path();
        let (address, noted) =
            (SocketAddr::from(([127, 0, 0, 1], 9)), base.join("one/127.0.0.1:9.sessions"));
        std::fs::create_dir_all(&noted).unwrap();
        std::os::unix::fs::symlink("one", base.join("same")).unwrap();
        let would = |records: Folder| {
            let worker = WorkerCommand {
                program: PathBuf::new(),
                args: Vec::new(),
                env: Vec::new(),
                cgroup: None,
            };
            let mut config = Config::new("127.0.0.1:9", worker);
            config.standing.records = records;
            would_find_sessions(&config, address, &noted).map_err(|error| error.to_string())
        };
        assert_eq!(would(Folder::At(base.join("one"))), Ok(()));
        assert_eq!(would(Folder::At(base.join("same"))), Ok(()));
        let error = would(Folder::At(base.join("two"))).unwrap_err();
        assert!(
            error.contains("one/127.0.0.1:9.sessions")
                && error.contains("two/127.0.0.1:9.sessions"),
            "{error}"
        );
        assert!(would(Folder::Usual).is_err());
        assert!(would(Folder::Off).unwrap_err().contains("nowhere"));
    }

    #[test]
    fn a_program_that_is_not_there_leaves_everything_as_it_was() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let program = Program { path: "/nowhere".into(), arguments: Vec::new(), check: Vec::new() };
        let error = become_program(&program, 1, &[listener.as_fd()]);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(rustix::io::fcntl_getfd(&listener).unwrap().contains(FdFlags::CLOEXEC));
    }
}
