//! Runs a program as this process's child: for `outboard run --stats`, which says afterwards where
//! its time went, and for a server that is to end with it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use miette::{IntoDiagnostic, Result, WrapErr};

use crate::jupyter::parent;
use crate::profile::{self, Process};

/// Names the file in which a process leaves its profile.
const VARIABLE: &str = "OUTBOARD_PROFILE";

/// The program, while it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// Signals that came before it was known: one bit for each.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// Runs the program, prints what it waited for if that is wanted, does what is to be done at the
/// end, and ends with its status. Returns only if the program cannot be started.
pub(crate) fn run(
    mut command: Command,
    with_profile: bool,
    at_end: impl FnOnce(),
) -> Result<io::Error> {
    let folder = with_profile
        .then(|| tempfile::Builder::new().prefix("outboard-run-").tempdir())
        .transpose()
        .into_diagnostic()
        .wrap_err("cannot make a folder for the profiles of the processes")?;
    if let Some(folder) = &folder {
        command.env(VARIABLE, folder.path().join("%p.json"));
    }
    handle_signals();
    parent::stand_in(&mut command, || pass_on(libc::SIGTERM));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            at_end();
            return Ok(error);
        }
    };
    CHILD.store(child.id() as i32, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    (1..64).filter(|signal| early >> signal & 1 == 1).for_each(|signal| pass_on(signal));
    let status = child.wait();
    // Its number may belong to another process now.
    CHILD.store(0, Ordering::Relaxed);
    if let Some(folder) = folder {
        let report = profile::report(&profiles(folder.path()));
        drop(folder);
        eprint!("{report}");
    }
    at_end();
    end(status.into_diagnostic().wrap_err("cannot learn how the program ended")?)
}

/// The profiles of the processes, in the order of their numbers.
fn profiles(folder: &Path) -> Vec<Process> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // Beside them may be one that its process could not finish.
    let left =
        files.map(|file| file.path()).filter(|path| path.extension() == Some("json".as_ref()));
    let mut all: Vec<Process> = left.filter_map(|path| profile::read(&path).ok()).collect();
    all.sort_by_key(|process| process.process);
    all
}

/// Ends with the program's status; with that which shells give to one that a signal has ended.
fn end(status: ExitStatus) -> ! {
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// The terminal sends its signals to the program as well, and this process outlives it to say where
/// its time went. Signals that are sent to this process alone are forwarded.
fn handle_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        set(signal, ignore);
    }
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        set(signal, pass_on);
    }
}

/// A handler rather than `SIG_IGN`, which the program would inherit.
fn set(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: an all-zero `sigaction` is valid, and both handlers make only calls that are safe in
    // one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

extern "C" fn ignore(_: libc::c_int) {}

extern "C" fn pass_on(signal: libc::c_int) {
    match CHILD.load(Ordering::SeqCst) {
        // The program may run before this process knows its number.
        0 => _ = EARLY.fetch_or(1 << signal, Ordering::SeqCst),
        // SAFETY: a number only; the program is not waited for yet, so it is still its.
        child => _ = unsafe { libc::kill(child, signal) },
    }
}
