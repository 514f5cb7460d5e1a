//! What a worker's sandbox stops. Each attempt is made by a process of its own with the sandbox,
//! where it must fail with the error that the layer gives. What every system allows is also tried
//! without the sandbox, where it must succeed. The rest is not: root would change the machine.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use outboard_worker::sandbox::{Calls, Mode, Sandbox};
use rustix::net::{AddressFamily, SocketType, socket};

/// What a process of this test is told by: the attempt, the list of calls of its sandbox or `free`,
/// the folder that it may not use, the one that it may, and the process that started it.
struct Case {
    forbidden: PathBuf,
    own: PathBuf,
    parent: i32,
}

impl Case {
    fn secret(&self) -> PathBuf {
        self.forbidden.join("secret")
    }
}

type Attempt = (&'static str, fn(&Case) -> io::Result<()>, Expected);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Fails with this error; without the sandbox it succeeds.
    Stopped(i32),
    /// Fails with this error; without the sandbox it needs rights or a kernel that this machine may
    /// lack, and is not tried.
    StoppedAnyhow(i32),
    /// Succeeds in both.
    Allowed,
}

use Expected::{Allowed, Stopped, StoppedAnyhow};

const ATTEMPTS: &[Attempt] = &[
    (
        "reads_a_file_of_the_user",
        |case| fs::read(case.forbidden.join("secret")).map(drop),
        Stopped(libc::EACCES),
    ),
    (
        "lists_a_folder_of_the_user",
        |case| fs::read_dir(&case.forbidden).map(drop),
        Stopped(libc::EACCES),
    ),
    ("writes_a_file", |case| fs::write(case.forbidden.join("new"), b"x"), Stopped(libc::EACCES)),
    (
        "removes_a_file",
        |case| fs::remove_file(case.forbidden.join("secret")),
        Stopped(libc::EACCES),
    ),
    (
        "reads_the_memory_of_its_parent",
        |case| fs::read(format!("/proc/{}/environ", case.parent)).map(drop),
        Stopped(libc::EACCES),
    ),
    ("reads_passwords", |_| fs::read("/etc/passwd").map(drop), Stopped(libc::EACCES)),
    ("reads_libraries", |_| fs::read_dir("/usr/lib").map(drop), Allowed),
    ("reads_about_itself", |_| fs::read("/proc/self/maps").map(drop), Allowed),
    ("looks_for_sockets", |_| fs::read("/proc/self/net/unix").map(drop), Stopped(libc::EACCES)),
    (
        "looks_for_sockets_as_a_thread",
        |_| fs::read("/proc/thread-self/net/unix").map(drop),
        Stopped(libc::EACCES),
    ),
    ("looks_for_mounts", |_| fs::read("/proc/self/mountinfo").map(drop), Stopped(libc::EACCES)),
    ("looks_for_mounts_by_name", |_| fs::read("/proc/mounts").map(drop), Stopped(libc::EACCES)),
    ("names_a_thread", |_| name_a_thread(), Allowed),
    ("writes_to_its_cache", |case| fs::write(case.own.join("image"), b"x"), Allowed),
    ("starts_a_program", |_| Command::new("/bin/true").status().map(drop), Stopped(libc::EPERM)),
    ("becomes_a_program", |_| Err(exec()), Stopped(libc::EPERM)),
    ("forks", |_| fork(), Stopped(libc::EPERM)),
    ("clones_by_a_structure", |_| call(libc::SYS_clone3, [0; 4]), StoppedAnyhow(libc::ENOSYS)),
    ("starts_a_thread", |_| thread(|| Ok(())), Allowed),
    (
        "listens_on_the_network",
        |_| std::net::TcpListener::bind("127.0.0.1:0").map(drop),
        Stopped(libc::EPERM),
    ),
    (
        "sends_a_datagram",
        |_| std::net::UdpSocket::bind("127.0.0.1:0").map(drop),
        Stopped(libc::EPERM),
    ),
    (
        "opens_a_socket_in_another_thread",
        |_| thread(|| std::net::UdpSocket::bind("127.0.0.1:0").map(drop)),
        Stopped(libc::EPERM),
    ),
    ("connects_a_socket_that_it_was_handed", connect_handed, Stopped(libc::EPERM)),
    ("binds_a_socket_that_it_was_handed", |_| bind_handed(), Stopped(libc::EPERM)),
    ("sends_past_the_rules_for_connections_handed", send_at_once, Stopped(libc::EPERM)),
    (
        "sends_messages_past_the_rules_handed",
        |_| send_messages_at_once(),
        StoppedAnyhow(libc::EPERM),
    ),
    (
        "listens_with_a_socket_that_it_was_handed",
        |_| call(libc::SYS_listen, [0, 1, 0, 0]),
        Stopped(libc::EPERM),
    ),
    ("makes_something_else_of_a_socket_handed", |_| change_socket(), StoppedAnyhow(libc::EPERM)),
    ("sets_the_sizes_of_a_socket_handed", |_| set_up_socket(), Allowed),
    ("talks_to_itself", |_| UnixStream::pair().map(drop), Allowed),
    (
        "connects_to_another_process_of_this_machine",
        |case| UnixStream::connect(case.own.join(SOCKET)).map(drop),
        Stopped(libc::EPERM),
    ),
    (
        "sends_a_datagram_to_a_name_of_this_machine",
        |case| UnixDatagram::pair()?.0.send_to(b"x", case.own.join(DATAGRAMS)).map(drop),
        Stopped(libc::EPERM),
    ),
    ("changes_who_may_use_a_file", |case| change_mode(&case.secret()), Stopped(libc::EPERM)),
    ("changes_who_may_use_an_open_file", change_open_mode, Stopped(libc::EPERM)),
    ("changes_when_a_file_was_changed", |case| change_times(case, false), Stopped(libc::EPERM)),
    (
        "changes_when_an_open_file_was_changed",
        |case| change_times(case, true),
        Stopped(libc::EPERM),
    ),
    ("changes_what_is_noted_of_files", |_| all(METADATA), StoppedAnyhow(libc::EPERM)),
    ("changes_what_is_noted_by_a_control", change_attributes, Stopped(libc::EPERM)),
    ("watches_a_folder", |case| watch(&case.forbidden), Stopped(libc::EPERM)),
    ("types_into_a_terminal", |_| type_in(), StoppedAnyhow(libc::EPERM)),
    ("has_signals_sent_by_a_descriptor", |_| own_descriptor(), Stopped(libc::EPERM)),
    ("leads_another_group_of_processes", |_| call(libc::SYS_setpgid, [0; 4]), Stopped(libc::EPERM)),
    (
        "slows_all_of_a_user",
        |_| call(libc::SYS_setpriority, [libc::PRIO_USER.into(), NOBODY, 19, 0]),
        StoppedAnyhow(libc::EPERM),
    ),
    ("chooses_processors_for_its_parent", |case| choose(case.parent), Stopped(libc::EPERM)),
    ("chooses_its_own_processors", |_| choose(0), Allowed),
    ("takes_turns_for_its_parent", |case| take_turns(case.parent), Stopped(libc::EPERM)),
    ("makes_memory_that_has_a_descriptor", |_| make_memory(), Allowed),
    (
        "makes_a_call_that_no_list_has",
        |_| call(libc::SYS_chdir, [c"/".as_ptr() as i64, 0, 0, 0]),
        Stopped(libc::EPERM),
    ),
    ("makes_a_call_of_the_future", |_| call(NEW, [0; 4]), StoppedAnyhow(libc::ENOSYS)),
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
    (
        "signals_its_parent",
        |case| call(libc::SYS_kill, [case.parent as i64, 0, 0, 0]),
        Stopped(libc::EPERM),
    ),
    ("signals_all_it_can", |_| call(libc::SYS_kill, [-1, 0, 0, 0]), Stopped(libc::EPERM)),
    (
        "signals_a_thread_of_its_parent",
        |case| call(libc::SYS_tgkill, [case.parent as i64, case.parent as i64, 0, 0]),
        Stopped(libc::EPERM),
    ),
    ("signals_itself", |_| signal_itself(), Allowed),
    ("takes_descriptors_from_its_parent", |case| limit(case.parent), Stopped(libc::EPERM)),
    ("limits_itself", |_| limit(0), Allowed),
    (
        "slows_its_parent",
        |case| call(libc::SYS_setpriority, [libc::PRIO_PROCESS.into(), case.parent as i64, 19, 0]),
        Stopped(libc::EPERM),
    ),
    (
        "shares_memory_by_number",
        |_| call(libc::SYS_shmget, [0, 4096, 0o600, 0]).map(drop),
        Stopped(libc::EPERM),
    ),
    ("opens_sockets_of_other_families", |_| other_families(), StoppedAnyhow(libc::EPERM)),
    ("starts_other_processes", |_| all(PROCESSES), StoppedAnyhow(libc::EPERM)),
    ("looks_into_other_processes", |_| all(OTHERS), StoppedAnyhow(libc::EPERM)),
    ("changes_what_it_sees_of_files", |_| all(VIEWS), StoppedAnyhow(libc::EPERM)),
    ("changes_the_kernel_and_its_clocks", |_| all(KERNEL), StoppedAnyhow(libc::EPERM)),
    ("goes_around_the_filter", |_| all(AROUND), StoppedAnyhow(libc::EPERM)),
    ("talks_by_numbers", |_| all_with(NUMBERS, NOBODYS), StoppedAnyhow(libc::EPERM)),
    ("becomes_another_user", |_| become_another(), StoppedAnyhow(libc::EPERM)),
    (
        "reads_about_its_parent",
        |case| fs::read(format!("/proc/{}/maps", case.parent)).map(drop),
        Stopped(libc::EACCES),
    ),
    (
        "reads_what_the_first_process_was_told",
        |_| fs::read("/proc/1/environ").map(drop),
        StoppedAnyhow(libc::EACCES),
    ),
    (
        "writes_to_the_kernels_settings",
        // Opened only: without the sandbox it would stay changed.
        |_| fs::File::options().write(true).open("/proc/sys/kernel/core_pattern").map(drop),
        StoppedAnyhow(libc::EACCES),
    ),
    ("writes_to_the_disk", |_| device_of_a_disk(), StoppedAnyhow(libc::EACCES)),
    (
        "takes_a_name_space",
        |_| call(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER), 0, 0, 0]),
        StoppedAnyhow(libc::EPERM),
    ),
    ("mounts", |_| call(libc::SYS_mount, [0; 4]), StoppedAnyhow(libc::EPERM)),
    ("loads_a_kernel_program", |_| call(libc::SYS_bpf, [0; 4]), StoppedAnyhow(libc::EPERM)),
    (
        "goes_around_by_a_ring",
        |_| call(libc::SYS_io_uring_setup, [1, 0, 0, 0]),
        StoppedAnyhow(libc::EPERM),
    ),
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

/// Process creation and execution.
const PROCESSES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_execveat,
];
/// Other processes.
const OTHERS: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_tkill,
];
/// Mounts, name spaces, files by handle.
const VIEWS: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
];
/// Modules, another kernel, clocks, names, swap, the log.
const KERNEL: &[libc::c_long] = &[
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];
/// Programs in the kernel, rings, faults handled by hand, keys, and what x86 has for the lowest
/// level.
const AROUND: &[libc::c_long] = &[
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];
/// What the system notes of files and does for those who wait for changes.
const METADATA: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    452, // fchmodat2
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    463, // setxattrat
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    466, // removexattrat
    469, // file_setattr
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_mark,
    libc::SYS_truncate,
];
/// A user that has no processes.
const NOBODY: i64 = 64_999;
/// A call that no kernel has yet.
const NEW: libc::c_long = 1000;

/// Shared memory, semaphores and messages that have a number, and queues that have a name.
const NUMBERS: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];
/// Of a number that nothing has. With 0 for a key, an attempt without the sandbox would make a
/// queue, and then wait for a message in the first one that the machine has.
const NOBODYS: [i64; 4] = [-1, 0, 0, 0];

/// Each of these calls is refused, as all of them are by the filter: with no other error, and
/// without having been looked at.
fn all(calls: &[libc::c_long]) -> io::Result<()> {
    all_with(calls, [0; 4])
}

fn all_with(calls: &[libc::c_long], arguments: [i64; 4]) -> io::Result<()> {
    let others: Vec<_> = calls
        .iter()
        .filter(|number| refusal(call(**number, arguments)) != Some(libc::EPERM))
        .collect();
    if others.is_empty() { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
}

fn refusal(outcome: io::Result<()>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

/// Sockets of every family but that of this machine's own, whatever the kernel knows of them.
fn other_families() -> io::Result<()> {
    let families = (0..64).filter(|family| *family != libc::AF_UNIX);
    let kinds = families.flat_map(|family| {
        [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW].map(|kind| (family, kind))
    });
    for (family, kind) in kinds {
        let outcome = call(libc::SYS_socket, [family.into(), kind.into(), 0, 0]);
        if refusal(outcome) != Some(libc::EPERM) {
            return Ok(());
        }
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}

/// By every call that changes users or groups; to become who one is, is no change.
fn become_another() -> io::Result<()> {
    let (other, same) = (65533, -1);
    let list = [other as u32];
    let calls = [
        (libc::SYS_setuid, [other, 0, 0, 0]),
        (libc::SYS_setgid, [other, 0, 0, 0]),
        (libc::SYS_setreuid, [other, other, 0, 0]),
        (libc::SYS_setregid, [other, other, 0, 0]),
        (libc::SYS_setresuid, [same, other, same, 0]),
        (libc::SYS_setresgid, [same, other, same, 0]),
        (libc::SYS_setgroups, [1, list.as_ptr() as i64, 0, 0]),
    ];
    let stopped = calls
        .into_iter()
        .all(|(number, arguments)| refusal(call(number, arguments)) == Some(libc::EPERM));
    if stopped { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
}

/// Sets the number of descriptors that a process may have to what it is; 0 for this one.
fn limit(process: i32) -> io::Result<()> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    call(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE.into(), 0, (&raw mut limit) as i64])?;
    call(
        libc::SYS_prlimit64,
        [process.into(), libc::RLIMIT_NOFILE.into(), (&raw const limit) as i64, 0],
    )
}

/// As `abort` and the C library's threads do it.
fn signal_itself() -> io::Result<()> {
    let own = i64::from(std::process::id());
    call(libc::SYS_kill, [own, 0, 0, 0])?;
    call(libc::SYS_tgkill, [own, rustix::thread::gettid().as_raw_nonzero().get().into(), 0, 0])
}

/// Opens the first disk there is for writing.
fn device_of_a_disk() -> io::Result<()> {
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let disk = disks
        .map(|disk| Path::new("/dev").join(disk.file_name()))
        .next()
        .unwrap_or_else(|| "/dev/sda".into());
    fs::OpenOptions::new().write(true).open(disk).map(drop)
}

fn call(number: libc::c_long, arguments: [i64; 4]) -> io::Result<()> {
    let [a, b, c, d] = arguments;
    // SAFETY: null pointers and small numbers, in a process of this attempt's own.
    match unsafe { libc::syscall(number, a, b, c, d) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Where the process that started this one listens: the file that says the address, and sockets of
/// this machine.
const LISTENS: &str = "listens";
const SOCKET: &str = "socket";
const DATAGRAMS: &str = "datagrams";

/// A TCP socket, as collectives have them, is the standard input of each attempt.
fn connect_handed(case: &Case) -> io::Result<()> {
    let address = fs::read_to_string(case.own.join(LISTENS))?;
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    Ok(rustix::net::connect(io::stdin(), &address)?)
}

fn bind_handed() -> io::Result<()> {
    Ok(rustix::net::bind(io::stdin(), &SocketAddr::from(([127, 0, 0, 1], 0)))?)
}

/// Connects a socket elsewhere, and sends to there, in one call.
fn send_at_once(case: &Case) -> io::Result<()> {
    let address = fs::read_to_string(case.own.join(LISTENS))?;
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    let flags = rustix::net::SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
    Ok(rustix::net::sendto(io::stdin(), b"x", flags, &address).map(drop)?)
}

/// The other two calls that do. Without an address they are wrong anyhow.
fn send_messages_at_once() -> io::Result<()> {
    let flags = i64::from(libc::MSG_FASTOPEN);
    let stopped = [(libc::SYS_sendmsg, [0, 0, flags, 0]), (libc::SYS_sendmmsg, [0, 0, 0, flags])]
        .into_iter()
        .all(|(number, arguments)| refusal(call(number, arguments)) == Some(libc::EPERM));
    if stopped { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
}

fn option(level: i32, name: i32) -> io::Result<()> {
    let value: libc::c_int = 1 << 16;
    // SAFETY: the value is a number, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(0, level, name, (&raw const value).cast(), size_of_val(&value) as u32)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn change_socket() -> io::Result<()> {
    let names = [
        libc::TCP_FASTOPEN,
        libc::TCP_FASTOPEN_CONNECT,
        libc::TCP_FASTOPEN_KEY,
        libc::TCP_FASTOPEN_NO_COOKIE,
        libc::TCP_REPAIR,
        libc::TCP_REPAIR_QUEUE,
        libc::TCP_REPAIR_OPTIONS,
        libc::TCP_REPAIR_WINDOW,
        libc::TCP_QUEUE_SEQ,
        libc::TCP_ULP,
    ];
    let stopped =
        names.into_iter().all(|name| refusal(option(libc::IPPROTO_TCP, name)) == Some(libc::EPERM));
    if stopped { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
}

fn set_up_socket() -> io::Result<()> {
    for name in [libc::SO_REUSEADDR, libc::SO_SNDBUF, libc::SO_RCVBUF, libc::SO_KEEPALIVE] {
        option(libc::SOL_SOCKET, name)?;
    }
    option(libc::IPPROTO_TCP, libc::TCP_NODELAY)
}

fn change_mode(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

fn change_open_mode(case: &Case) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let file = fs::File::create(case.own.join("open"))?;
    file.set_permissions(fs::Permissions::from_mode(0o4755))
}

fn change_times(case: &Case, of_open: bool) -> io::Result<()> {
    if of_open {
        return fs::File::create(case.own.join("open"))?.set_modified(std::time::UNIX_EPOCH);
    }
    let path = std::ffi::CString::new(case.secret().into_os_string().into_encoded_bytes())?;
    call(libc::SYS_utimensat, [libc::AT_FDCWD.into(), path.as_ptr() as i64, 0, 0])
}

/// Sets the attributes of an open file that it has already.
fn change_attributes(case: &Case) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    const GET: i64 = 0x8008_6601;
    const SET: i64 = 0x4008_6602;
    let file = fs::File::create(case.own.join("open"))?;
    let mut attributes = 0_u64;
    let asked =
        call(libc::SYS_ioctl, [file.as_raw_fd().into(), GET, (&raw mut attributes) as i64, 0]);
    let set =
        call(libc::SYS_ioctl, [file.as_raw_fd().into(), SET, (&raw const attributes) as i64, 0]);
    // The file system may have none.
    if refusal(set) == Some(libc::EPERM) {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    } else {
        asked.or(Ok(()))
    }
}

fn watch(folder: &Path) -> io::Result<()> {
    use rustix::fs::inotify;
    let watcher = inotify::init(inotify::CreateFlags::empty())?;
    inotify::add_watch(&watcher, folder, inotify::WatchFlags::CREATE)?;
    Ok(())
}

fn type_in() -> io::Result<()> {
    call(libc::SYS_ioctl, [0, libc::TIOCSTI as i64, c"x".as_ptr() as i64, 0])
}

fn own_descriptor() -> io::Result<()> {
    let own = i64::from(std::process::id());
    call(libc::SYS_fcntl, [0, libc::F_SETOWN.into(), own, 0])
}

/// Lets a process run where it runs.
fn choose(process: i32) -> io::Result<()> {
    let process = process.into();
    let mut processors = [0_u64; 128];
    let (bytes, at) = (size_of_val(&processors) as i64, (&raw mut processors) as i64);
    call(libc::SYS_sched_getaffinity, [process, bytes, at, 0])?;
    call(libc::SYS_sched_setaffinity, [process, bytes, at, 0])
}

/// Has a process take turns with others as usual.
fn take_turns(process: i32) -> io::Result<()> {
    let usual = 0_i32;
    call(
        libc::SYS_sched_setscheduler,
        [process.into(), libc::SCHED_OTHER.into(), (&raw const usual) as i64, 0],
    )
}

fn make_memory() -> io::Result<()> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let memory = rustix::fs::memfd_create(c"memory", flags)?;
    Ok(rustix::fs::ftruncate(&memory, 4096)?)
}

/// As NVIDIA's driver does it.
fn name_a_thread() -> io::Result<()> {
    thread(|| {
        fs::write(
            format!("/proc/self/task/{}/comm", rustix::thread::gettid().as_raw_nonzero()),
            "driver",
        )
    })
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
    std::thread::Builder::new()
        .spawn(what)?
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("it panicked")))
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

/// Why no attempt is made.
const WITHOUT: &str = "this kernel has no Landlock, or none for sockets";

/// The version of Landlock's interface that has rules for sockets.
const OF_SOCKETS: i64 = 4;

/// The version of Landlock's interface; 0 without.
fn landlock() -> i64 {
    // SAFETY: with this flag the call only tells a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1).max(0) }
}

/// A process of an attempt: its exit code is the error, 0 for none, or 200 if the sandbox was not
/// complete.
fn attempt(args: &[String]) -> ExitCode {
    let [name, how, forbidden, own, parent] = args else { return ExitCode::from(201) };
    let case =
        Case { forbidden: forbidden.into(), own: own.into(), parent: parent.parse().unwrap_or(0) };
    if let Ok(calls) = how.parse() {
        let sandbox =
            Sandbox::new(Mode::Strict, Vec::new(), vec![case.own.clone()]).with_calls(calls);
        if sandbox.before_the_driver().is_err() || sandbox.before_the_client(None).is_err() {
            return ExitCode::from(200);
        }
    }
    let Some((_, make, _)) = ATTEMPTS.iter().find(|(other, ..)| other == name) else {
        return ExitCode::from(202);
    };
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
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address").to_string();
    fs::write(own.join(LISTENS), address).expect("the folder can be written to");
    let sockets = [own.join(SOCKET), own.join(DATAGRAMS)];
    sockets.iter().for_each(|path| drop(fs::remove_file(path)));
    let _local = UnixListener::bind(&sockets[0]).expect("a socket");
    let _datagrams = UnixDatagram::bind(&sockets[1]).expect("another one");
    let handed = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let status = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["attempt", name, how])
        .args([forbidden, own])
        .arg(parent)
        .stdin(handed)
        .stderr(Stdio::null())
        .status();
    status.expect("the process of an attempt starts").code().unwrap_or(-1)
}

fn holds(name: &str, expected: Expected, folder: &Path) -> Result<(), Failed> {
    let (forbidden, own) = (folder.join(name).join("user"), folder.join(name).join("cache"));
    for path in [&forbidden, &own] {
        fs::create_dir_all(path)?;
    }
    let secret = || fs::write(forbidden.join("secret"), b"secret");
    let confined = |code| if code == 0 { 100 } else { code };
    secret()?;
    let sandboxed = outcome(name, Calls::Allow.name(), &forbidden, &own);
    let denied = outcome(name, Calls::Deny.name(), &forbidden, &own);
    let kept = forbidden.join("secret").exists() && !forbidden.join("new").exists();
    secret()?;
    let right = match expected {
        Allowed => sandboxed == 0,
        Stopped(code) => sandboxed == code && kept,
        StoppedAnyhow(code) => sandboxed == confined(code),
    };
    if !right {
        return Err(format!("{sandboxed} in the sandbox").into());
    }
    if !matches!(expected, StoppedAnyhow(_)) {
        let free = outcome(name, "free", &forbidden, &own);
        if free != 0 {
            return Err(format!("{free} without the sandbox").into());
        }
    }
    let right = match expected {
        _ if OF_THE_LIST.contains(&name) => denied == 0 || denied == libc::ENOSYS,
        Stopped(_) if OF_LANDLOCK.contains(&name) => denied == libc::EACCES,
        Allowed => denied == 0,
        Stopped(code) | StoppedAnyhow(code) => denied == confined(code),
    };
    if right { Ok(()) } else { Err(format!("{denied} with the list of refused calls").into()) }
}

/// Attempts that only the list of allowed calls stops.
const OF_THE_LIST: &[&str] = &[
    "connects_to_another_process_of_this_machine",
    "sends_a_datagram_to_a_name_of_this_machine",
    "makes_a_call_that_no_list_has",
    "makes_a_call_of_the_future",
];

/// Attempts that Landlock stops as well.
const OF_LANDLOCK: &[&str] =
    &["connects_a_socket_that_it_was_handed", "binds_a_socket_that_it_was_handed"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "attempt") {
        return attempt(&args[1..]);
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let trial = |(name, _, expected): &(&'static str, _, Expected)| {
        let (name, expected, folder) = (*name, *expected, folder.path().to_owned());
        let trial = Trial::test(name, move || holds(name, expected, &folder));
        let needed = if name.ends_with("_handed") { OF_SOCKETS } else { 1 };
        if landlock() < needed { trial.with_kind(WITHOUT).with_ignored_flag(true) } else { trial }
    };
    let trials = ATTEMPTS.iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
