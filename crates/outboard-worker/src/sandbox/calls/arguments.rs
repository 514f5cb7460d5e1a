//! System calls that are judged by their arguments.

use outboard_control::calls::Number;

use super::filter::Test;

/// A call, and how it is judged.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) call: Number,
    /// It may be made if all tests of any of these hold.
    pub(super) good: Vec<Vec<Test>>,
    pub(super) rest: Rest,
}

/// What becomes of a call of which nothing good is known.
#[derive(Debug)]
pub(super) enum Rest {
    /// It is refused.
    Refused,
    /// It is as any call that is not listed, but if all tests of any of these hold, it is refused.
    Unlisted(Vec<Vec<Test>>),
    /// If all tests of any of these hold, the supervisor looks whether the call is about a thread
    /// of this process. Else it is refused.
    OfThreads(Vec<Vec<Test>>),
}

use Rest::{OfThreads, Refused, Unlisted};

fn one(argument: u8, values: &[u32]) -> Test {
    Test { argument, mask: u32::MAX, values: values.to_vec(), is_one: true }
}

fn none(argument: u8, values: &[u32]) -> Test {
    Test { is_one: false, ..one(argument, values) }
}

/// Tests of the bits that are set in the mask.
fn masked(argument: u8, mask: u32, values: &[u32]) -> Test {
    Test { mask, ..one(argument, values) }
}

/// Sends and connects at once, past the rules for connections.
const FAST_OPEN: u32 = libc::MSG_FASTOPEN as u32;
/// Kinds of sockets are these bits; the others are flags.
const KIND: u32 = 0xf;
const UNIX: u32 = libc::AF_UNIX as u32;

/// Who gets the signals of a descriptor, leases that delay others, and watches of folders.
const COMMANDS_OF_DESCRIPTORS: [u32; 5] =
    [libc::F_SETOWN as u32, F_SETSIG, F_SETOWN_EX, libc::F_SETLEASE as u32, libc::F_NOTIFY as u32];
const F_SETSIG: u32 = 10;
const F_SETOWN_EX: u32 = 15;

/// What types into a terminal, says who gets signals, and changes what the system notes of files.
const CONTROLS: [u32; 8] = [
    libc::TIOCSTI as u32,
    libc::TIOCLINUX as u32,
    0x8901,      // FIOSETOWN
    0x8902,      // SIOCSPGRP
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
    0x4008_7602, // FS_IOC_SETVERSION
];

/// What a process says of itself to the system.
const OWN_CONTROLS: &[u32] = &[
    libc::PR_SET_PDEATHSIG as u32,
    libc::PR_GET_PDEATHSIG as u32,
    libc::PR_GET_DUMPABLE as u32,
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_GET_SECCOMP as u32,
    libc::PR_CAPBSET_READ as u32,
    libc::PR_SET_TIMERSLACK as u32,
    libc::PR_GET_TIMERSLACK as u32,
    libc::PR_GET_NO_NEW_PRIVS as u32,
    libc::PR_SET_THP_DISABLE as u32,
    libc::PR_GET_THP_DISABLE as u32,
    51, // PR_SVE_GET_VL
    64, // PR_SME_GET_VL
    libc::PR_SET_VMA as u32,
    0x4155_5856, // PR_GET_AUXV
];

/// Options of sockets: sizes, times and the like, and none that changes what a socket is or who
/// reads it; no lingering, which lets a close wait.
const OPTIONS: [u32; 14] = [
    libc::SO_REUSEADDR as u32,
    libc::SO_SNDBUF as u32,
    libc::SO_RCVBUF as u32,
    libc::SO_KEEPALIVE as u32,
    libc::SO_PRIORITY as u32,
    libc::SO_REUSEPORT as u32,
    libc::SO_PASSCRED as u32,
    libc::SO_RCVLOWAT as u32,
    libc::SO_RCVTIMEO as u32,
    libc::SO_SNDTIMEO as u32,
    libc::SO_BUSY_POLL as u32,
    libc::SO_ZEROCOPY as u32,
    66, // SO_RCVTIMEO_NEW
    67, // SO_SNDTIMEO_NEW
];
const TCP: u32 = libc::IPPROTO_TCP as u32;
const TCP_OPTIONS: [u32; 10] = [
    libc::TCP_NODELAY as u32,
    libc::TCP_MAXSEG as u32,
    libc::TCP_CORK as u32,
    libc::TCP_KEEPIDLE as u32,
    libc::TCP_KEEPINTVL as u32,
    libc::TCP_KEEPCNT as u32,
    libc::TCP_SYNCNT as u32,
    libc::TCP_QUICKACK as u32,
    libc::TCP_USER_TIMEOUT as u32,
    libc::TCP_NOTSENT_LOWAT as u32,
];
/// Options by which a connected socket connects elsewhere, or becomes something else.
const TCP_REFUSED: [u32; 10] = [
    libc::TCP_REPAIR as u32,
    libc::TCP_REPAIR_QUEUE as u32,
    libc::TCP_QUEUE_SEQ as u32,
    libc::TCP_REPAIR_OPTIONS as u32,
    libc::TCP_REPAIR_WINDOW as u32,
    libc::TCP_FASTOPEN as u32,
    libc::TCP_FASTOPEN_CONNECT as u32,
    libc::TCP_FASTOPEN_KEY as u32,
    libc::TCP_FASTOPEN_NO_COOKIE as u32,
    libc::TCP_ULP as u32,
];
const IP_OPTIONS: [u32; 1] = [libc::IP_TOS as u32];
const IPV6_OPTIONS: [u32; 2] = [libc::IPV6_TCLASS as u32, libc::IPV6_V6ONLY as u32];

const IOPRIO_WHO_PROCESS: u32 = 1;

/// All of them, for a process of this number, which may make collectives. Those that come often
/// come first.
pub(super) fn rules(own: u32, collectives: bool) -> Vec<Rule> {
    let rule = |call, good: &[&[Test]], rest| Rule {
        call,
        good: good.iter().map(|tests| tests.to_vec()).collect(),
        rest,
    };
    let process = libc::PRIO_PROCESS;
    // NCCL's, by which workers of a machine give each other memory.
    let datagrams = vec![one(0, &[UNIX]), masked(1, KIND, &[libc::SOCK_DGRAM as u32])];
    let sockets = if collectives { vec![datagrams] } else { Vec::new() };
    let mut rules = vec![
        rule(libc::SYS_ioctl, &[&[none(1, &CONTROLS)]], Refused),
        rule(
            libc::SYS_sendto,
            // Without an address.
            &[&[masked(3, FAST_OPEN, &[0]), one(5, &[0])]],
            Unlisted(vec![vec![masked(3, FAST_OPEN, &[FAST_OPEN])]]),
        ),
        rule(libc::SYS_sendmsg, &[&[masked(2, FAST_OPEN, &[0])]], Refused),
        rule(libc::SYS_sendmmsg, &[&[masked(3, FAST_OPEN, &[0])]], Refused),
        rule(libc::SYS_fcntl, &[&[none(1, &COMMANDS_OF_DESCRIPTORS)]], Refused),
        // Threads are clones, and so are processes.
        rule(
            libc::SYS_clone,
            &[&[masked(0, libc::CLONE_THREAD as u32, &[libc::CLONE_THREAD as u32])]],
            Refused,
        ),
        rule(
            libc::SYS_setsockopt,
            &[
                &[one(1, &[libc::SOL_SOCKET as u32]), one(2, &OPTIONS)],
                &[one(1, &[TCP]), one(2, &TCP_OPTIONS)],
                &[one(1, &[libc::IPPROTO_IP as u32]), one(2, &IP_OPTIONS)],
                &[one(1, &[libc::IPPROTO_IPV6 as u32]), one(2, &IPV6_OPTIONS)],
            ],
            Unlisted(vec![vec![one(1, &[TCP]), one(2, &TCP_REFUSED)]]),
        ),
        // Datagrams would go to any socket of this machine's that its user may send to.
        rule(
            libc::SYS_socketpair,
            &[&[
                one(0, &[UNIX]),
                masked(1, KIND, &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32]),
            ]],
            Unlisted(vec![vec![none(0, &[UNIX])]]),
        ),
        Rule {
            call: libc::SYS_socket,
            good: sockets,
            rest: Unlisted(vec![vec![none(0, &[UNIX])]]),
        },
        rule(libc::SYS_prctl, &[&[one(0, OWN_CONTROLS)]], Unlisted(Vec::new())),
        // Only asks.
        rule(libc::SYS_personality, &[&[one(0, &[u32::MAX])]], Unlisted(Vec::new())),
        rule(
            libc::SYS_setpriority,
            &[&[one(0, &[process]), one(1, &[0])]],
            OfThreads(vec![vec![one(0, &[process])]]),
        ),
        rule(
            libc::SYS_ioprio_set,
            &[&[one(0, &[IOPRIO_WHO_PROCESS]), one(1, &[0])]],
            OfThreads(vec![vec![one(0, &[IOPRIO_WHO_PROCESS])]]),
        ),
    ];
    // Signals go to this process only, ...
    let signals =
        [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo];
    rules.extend(signals.map(|call| rule(call, &[&[one(0, &[own])]], Refused)));
    // ... limits and places in memory are its own, ...
    let limits = [libc::SYS_prlimit64, libc::SYS_migrate_pages, libc::SYS_move_pages];
    rules.extend(limits.map(|call| rule(call, &[&[one(0, &[0, own])]], Refused)));
    // ... and so are the threads whose processors and turns it chooses.
    let turns = [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ];
    rules
        .extend(turns.map(|call| rule(call, &[&[one(0, &[0, own])]], OfThreads(vec![Vec::new()]))));
    rules
}
