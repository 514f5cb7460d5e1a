//! What a worker's sandbox stops. Each attempt is made by a process of its own, once with the sandbox and once without: it must fail in the
//! one with the error that the layer gives, and where the system allows it, succeed in the other.

#![allow(clippy::print_stdout)]

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use outboard_server::sandbox::{Mode, Sandbox};

/// What a process of this test is told by: the attempt, `sandboxed` or `free`, the folder that it may not use, the one that it may, and the
/// process that started it.
struct Case {
    forbidden: PathBuf,
    own: PathBuf,
    parent: i32,
}

type Attempt = (&'static str, fn(&Case) -> io::Result<()>, Expected);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Fails with this error; without the sandbox it succeeds.
    Stopped(i32),
    /// Fails with this error; without the sandbox it needs rights or a kernel that this machine may lack.
    StoppedAnyhow(i32),
    /// As above, if the kernel can confine signals.
    StoppedIfScoped(i32),
    /// Succeeds in both.
    Allowed,
}

use Expected::{Allowed, Stopped, StoppedAnyhow, StoppedIfScoped};

const ATTEMPTS: &[Attempt] = &[
    ("reads_a_file_of_the_user", |case| fs::read(case.forbidden.join("secret")).map(drop), Stopped(libc::EACCES)),
    ("lists_a_folder_of_the_user", |case| fs::read_dir(&case.forbidden).map(drop), Stopped(libc::EACCES)),
    ("writes_a_file", |case| fs::write(case.forbidden.join("new"), b"x"), Stopped(libc::EACCES)),
    ("removes_a_file", |case| fs::remove_file(case.forbidden.join("secret")), Stopped(libc::EACCES)),
    (
        "reads_the_memory_of_its_parent",
        |case| fs::read(format!("/proc/{}/environ", case.parent)).map(drop),
        Stopped(libc::EACCES),
    ),
    ("reads_passwords", |_| fs::read("/etc/passwd").map(drop), Stopped(libc::EACCES)),
    ("reads_libraries", |_| fs::read_dir("/usr/lib").map(drop), Allowed),
    ("reads_about_itself", |_| fs::read("/proc/self/maps").map(drop), Allowed),
    ("names_a_thread", |_| name_a_thread(), Allowed),
    ("writes_to_its_cache", |case| fs::write(case.own.join("image"), b"x"), Allowed),
    ("starts_a_program", |_| Command::new("/bin/true").status().map(drop), Stopped(libc::EPERM)),
    ("becomes_a_program", |_| Err(exec()), Stopped(libc::EPERM)),
    ("forks", |_| fork(), Stopped(libc::EPERM)),
    ("clones_by_a_structure", |_| call(libc::SYS_clone3, [0; 4]), StoppedAnyhow(libc::ENOSYS)),
    ("starts_a_thread", |_| thread(|| Ok(())), Allowed),
    ("listens_on_the_network", |_| std::net::TcpListener::bind("127.0.0.1:0").map(drop), Stopped(libc::EPERM)),
    ("sends_a_datagram", |_| std::net::UdpSocket::bind("127.0.0.1:0").map(drop), Stopped(libc::EPERM)),
    (
        "opens_a_socket_in_another_thread",
        |_| thread(|| std::net::UdpSocket::bind("127.0.0.1:0").map(drop)),
        Stopped(libc::EPERM),
    ),
    ("talks_to_itself", |_| UnixStream::pair().map(drop), Allowed),
    (
        "looks_into_its_parent",
        |case| call(libc::SYS_process_vm_readv, [case.parent as i64, 0, 0, 0]),
        StoppedAnyhow(libc::EPERM),
    ),
    (
        "traces_its_parent",
        |case| call(libc::SYS_ptrace, [i64::from(libc::PTRACE_SEIZE), case.parent as i64, 0, 0]),
        StoppedAnyhow(libc::EPERM),
    ),
    ("signals_its_parent", |case| call(libc::SYS_kill, [case.parent as i64, 0, 0, 0]), StoppedIfScoped(libc::EPERM)),
    (
        "takes_a_name_space",
        |_| call(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER), 0, 0, 0]),
        StoppedAnyhow(libc::EPERM),
    ),
    ("mounts", |_| call(libc::SYS_mount, [0; 4]), StoppedAnyhow(libc::EPERM)),
    ("loads_a_kernel_program", |_| call(libc::SYS_bpf, [0; 4]), StoppedAnyhow(libc::EPERM)),
    ("goes_around_by_a_ring", |_| call(libc::SYS_io_uring_setup, [1, 0, 0, 0]), StoppedAnyhow(libc::EPERM)),
    ("is_without_new_privileges", |_| status("NoNewPrivs:\t1"), StoppedAnyhow(0)),
    ("has_no_capabilities", |_| status("CapEff:\t0000000000000000"), StoppedAnyhow(0)),
    ("can_get_no_capabilities_back", |_| status("CapPrm:\t0000000000000000"), StoppedAnyhow(0)),
    (
        "gives_its_files_to_another_user",
        |case| {
            let file = case.own.join("given");
            fs::write(&file, b"x")?;
            std::os::unix::fs::chown(file, Some(65534), None)
        },
        StoppedAnyhow(libc::EPERM),
    ),
    ("leaves_no_core", |_| no_core(), StoppedAnyhow(0)),
    #[cfg(target_arch = "x86_64")]
    ("calls_by_other_numbers", |_| call(0x4000_0000 | 520, [0; 4]), StoppedAnyhow(libc::ENOSYS)),
];

fn call(number: libc::c_long, arguments: [i64; 4]) -> io::Result<()> {
    let [a, b, c, d] = arguments;
    // SAFETY: null pointers and small numbers, in a process of this attempt's own.
    match unsafe { libc::syscall(number, a, b, c, d) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// As NVIDIA's driver does it.
fn name_a_thread() -> io::Result<()> {
    thread(|| fs::write(format!("/proc/self/task/{}/comm", rustix::thread::gettid().as_raw_nonzero()), "driver"))
}

fn exec() -> io::Error {
    use std::os::unix::process::CommandExt;
    Command::new("/bin/true").exec()
}

fn fork() -> io::Result<()> {
    // SAFETY: the child ends at once.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: as above.
        0 => unsafe { libc::_exit(0) },
        _ => Ok(()),
    }
}

fn thread(what: fn() -> io::Result<()>) -> io::Result<()> {
    std::thread::Builder::new().spawn(what)?.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}

/// Error 0 stands for what is right.
fn right(holds: bool) -> io::Result<()> {
    if holds { Err(io::Error::from_raw_os_error(0)) } else { Ok(()) }
}

fn status(line: &str) -> io::Result<()> {
    right(fs::read_to_string("/proc/self/status")?.lines().any(|other| other == line))
}

fn no_core() -> io::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
    right(limit.maximum == Some(0))
}

/// The version of Landlock's interface; 0 without.
fn landlock() -> i64 {
    // SAFETY: with this flag the call only tells a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1).max(0) }
}

/// A process of an attempt: its exit code is the error, 0 for none, or 200 if the sandbox was not complete.
fn attempt(args: &[String]) -> ExitCode {
    let [name, how, forbidden, own, parent] = args else { return ExitCode::from(201) };
    let case = Case { forbidden: forbidden.into(), own: own.into(), parent: parent.parse().unwrap_or(0) };
    if how == "sandboxed" {
        let sandbox = Sandbox::new(Mode::Strict, Vec::new(), vec![case.own.clone()]);
        if sandbox.before_the_driver().is_err() || sandbox.before_the_client().is_err() {
            return ExitCode::from(200);
        }
    }
    let Some((_, make, _)) = ATTEMPTS.iter().find(|(other, ..)| other == name) else { return ExitCode::from(202) };
    match make(&case) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.raw_os_error() {
            // What is right has no error of the system's.
            Some(0) => ExitCode::from(100),
            code => ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(203)),
        },
    }
}

fn outcome(name: &str, how: &str, forbidden: &Path, own: &Path) -> i32 {
    let parent = std::process::id().to_string();
    let status = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["attempt", name, how])
        .args([forbidden, own])
        .arg(parent)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("the process of an attempt starts").code().unwrap_or(-1)
}

fn holds(name: &str, expected: Expected, folder: &Path) -> bool {
    let (forbidden, own) = (folder.join(name).join("user"), folder.join(name).join("cache"));
    for path in [&forbidden, &own] {
        fs::create_dir_all(path).expect("a folder of the test's own");
    }
    let secret = || fs::write(forbidden.join("secret"), b"secret").expect("a file of the test's own");
    let confined = |code| if code == 0 { 100 } else { code };
    secret();
    let sandboxed = outcome(name, "sandboxed", &forbidden, &own);
    let kept = forbidden.join("secret").exists() && !forbidden.join("new").exists();
    secret();
    let free = outcome(name, "free", &forbidden, &own);
    let right = match expected {
        Allowed => sandboxed == 0 && free == 0,
        Stopped(code) => sandboxed == code && free == 0 && kept,
        StoppedAnyhow(code) => sandboxed == confined(code),
        StoppedIfScoped(code) => sandboxed == if landlock() >= 6 { code } else { 0 },
    };
    if !right {
        println!("{name}: {sandboxed} in the sandbox, {free} without");
    }
    right
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "attempt") {
        return attempt(&args[1..]);
    }
    if landlock() == 0 {
        println!("test sandbox ... ignored: this kernel has no Landlock");
        return ExitCode::SUCCESS;
    }
    let folder = std::env::temp_dir().join(format!("outboard-sandbox-{}", std::process::id()));
    let wanted = |name: &str| {
        let mut names = args.iter().filter(|arg| !arg.starts_with('-')).peekable();
        names.peek().is_none() || names.any(|part| name.contains(part.as_str()))
    };
    let mut failed = 0;
    for (name, _, expected) in ATTEMPTS.iter().filter(|(name, ..)| wanted(name)) {
        let right = holds(name, *expected, &folder);
        println!("test {name} ... {}", if right { "ok" } else { "FAILED" });
        failed += usize::from(!right);
    }
    // A folder that stays behind disturbs nobody.
    let _ = fs::remove_dir_all(&folder);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
