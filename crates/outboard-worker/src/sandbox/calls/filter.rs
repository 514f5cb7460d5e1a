//! Filters of system calls as programs of the kernel's (seccomp), and how one is installed.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::sock_filter;
use outboard_control::calls::{NEWEST, Number};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// Fails with this error.
    Fails(i32),
    /// Whoever has the listener says what becomes of it.
    Asked,
}

/// A test of the lower half of an argument. All arguments that are tested are numbers of 32 bits to
/// the kernel.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// Its place among the arguments.
    pub(super) argument: u8,
    /// The bits that count.
    pub(super) mask: u32,
    pub(super) values: Vec<u32>,
    /// Whether it is to be one of the values, or none of them.
    pub(super) is_one: bool,
}

/// A call that is judged by its arguments: the first case whose tests all hold decides.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) call: Number,
    pub(super) cases: Vec<(Vec<Test>, Verdict)>,
    pub(super) otherwise: Verdict,
}

/// A filter.
#[derive(Debug)]
pub(super) struct Filter {
    /// Calls that the kernel is to say it does not know.
    pub(super) unknown: Vec<Number>,
    /// Those that come often should come first.
    pub(super) judged: Vec<Judged>,
    /// Calls that are judged by their numbers.
    pub(super) listed: Vec<(BTreeSet<Number>, Verdict)>,
    pub(super) otherwise: Verdict,
    /// What becomes of calls that are newer than this program.
    pub(super) newer: Verdict,
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const MASK: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Where what a filter sees (`seccomp_data`) has the call's number, its processor, and the lower
/// half of the first argument. Both kinds of processors have that first.
const NUMBER: u32 = 0;
const PROCESSOR: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Numbers of the 32-bit form of x86-64: other calls by other names.
const X32: u32 = 0x4000_0000;

#[cfg(target_arch = "x86_64")]
const THIS_PROCESSOR: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const THIS_PROCESSOR: u32 = 0xc000_00b7;

fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

impl Verdict {
    fn step(self) -> sock_filter {
        let action = match self {
            Verdict::Allowed => libc::SECCOMP_RET_ALLOW,
            Verdict::Fails(error) => libc::SECCOMP_RET_ERRNO | error as u32,
            Verdict::Asked => libc::SECCOMP_RET_USER_NOTIF,
        };
        step(RETURN, 0, 0, action)
    }
}

impl Test {
    /// Goes on behind these steps if the test holds, else behind `rest` more.
    fn steps(&self, rest: usize) -> Vec<sock_filter> {
        let mut steps = vec![step(LOAD, 0, 0, ARGUMENTS + 8 * u32::from(self.argument))];
        if self.mask != u32::MAX {
            steps.push(step(MASK, 0, 0, self.mask));
        }
        let found = self.values.len();
        for (at, value) in self.values.iter().enumerate() {
            // Behind the comparisons is a jump for where none was equal.
            steps.push(step(EQUAL, (found - at) as u8, 0, *value));
        }
        let (equal, other) = if self.is_one { (0, rest as u32 + 1) } else { (rest as u32 + 1, 0) };
        // The jump for "none was equal", then the one for "one was".
        steps.push(step(JUMP, 0, 0, if other == 0 { 1 } else { other }));
        steps.push(step(JUMP, 0, 0, if equal == 0 { 0 } else { equal - 1 }));
        steps
    }
}

impl Judged {
    fn steps(&self) -> Vec<sock_filter> {
        let mut all = Vec::new();
        for (tests, verdict) in &self.cases {
            let mut case = vec![verdict.step()];
            for test in tests.iter().rev() {
                let mut steps = test.steps(case.len());
                steps.append(&mut case);
                case = steps;
            }
            all.append(&mut case);
        }
        all.push(self.otherwise.step());
        let mut steps =
            vec![step(EQUAL, 1, 0, self.call as u32), step(JUMP, 0, 0, all.len() as u32)];
        steps.append(&mut all);
        steps
    }
}

/// Numbers as ranges: first and last.
fn ranges(numbers: &BTreeSet<Number>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers.iter().map(|number| *number as u32) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

impl Filter {
    pub(super) fn program(&self) -> Vec<sock_filter> {
        let unknown = Verdict::Fails(libc::ENOSYS).step();
        let mut program = vec![
            step(LOAD, 0, 0, PROCESSOR),
            step(EQUAL, 1, 0, THIS_PROCESSOR),
            unknown,
            step(LOAD, 0, 0, NUMBER),
            step(AT_LEAST, 0, 1, X32),
            unknown,
        ];
        for call in &self.unknown {
            program.extend([step(EQUAL, 0, 1, *call as u32), unknown]);
        }
        for judged in &self.judged {
            program.extend(judged.steps());
        }
        for (numbers, verdict) in &self.listed {
            for (first, last) in ranges(numbers) {
                program.extend([step(AT_LEAST, 0, 2, first), step(ABOVE, 1, 0, last)]);
                program.push(verdict.step());
            }
        }
        program.extend([step(ABOVE, 0, 1, NEWEST as u32), self.newer.step()]);
        program.push(self.otherwise.step());
        program
    }
}

/// Installs a filter in all threads. If it asks, the result is the listener that is asked.
///
/// # Errors
/// The system's error: it may not know listeners (before Linux 5.7), or there is one already.
pub(super) fn install(program: &[sock_filter], asks: bool) -> io::Result<Option<OwnedFd>> {
    // By these numbers; the C library's header may lack them.
    const IN_ALL_THREADS: libc::c_ulong = 1;
    const WITH_A_LISTENER: libc::c_ulong = 1 << 3;
    const ERROR_IF_A_THREAD_CANNOT: libc::c_ulong = 1 << 4;
    rustix::thread::set_no_new_privs(true)?;
    let flags = if asks {
        IN_ALL_THREADS | WITH_A_LISTENER | ERROR_IF_A_THREAD_CANNOT
    } else {
        IN_ALL_THREADS
    };
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the program, which lives until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            (&raw const program).cast::<libc::c_void>(),
        )
    };
    match result {
        0 => Ok(None),
        // SAFETY: with that flag, the result is a descriptor that the call has opened.
        listener @ 1.. if asks => Ok(Some(unsafe { OwnedFd::from_raw_fd(listener as i32) })),
        1.. => Err(io::Error::other(format!("thread {result} has a filter of its own"))),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
