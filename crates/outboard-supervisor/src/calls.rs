//! System calls that workers' sandboxes refuse or leave to this process, which then says what
//! becomes of them and notes their names.
//!
//! The kernel asks by a listener (seccomp's user notification), which a worker hands over before it
//! reads a byte of its client, and of which it keeps nothing.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outboard_control::calls::{self, Number};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

/// Workers whose calls are judged at once; each has a thread and a descriptor. Those of others fail
/// as calls that the kernel does not have.
const MOST: usize = 4096;

/// After so many refusals, and so many calls about its own threads, a worker's calls fail without
/// this process, which has better things to do.
const MOST_REFUSED: usize = 256;
const MOST_OF_THREADS: usize = 1 << 16;

/// Enough for a line of the log.
const STACK: usize = 256 << 10;

/// What is known of workers' calls.
pub struct Calls {
    /// Whether calls that no list has go on.
    record: bool,
    /// Those of which the log has a line.
    noted: Mutex<BTreeSet<Number>>,
    listeners: AtomicUsize,
}

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// It is made, as it is about a thread of the worker's own.
    OfOwnThread,
    /// It is made, and noted.
    Recorded,
    /// It fails with this error.
    Fails(i32),
}

/// A call, as the kernel tells it.
struct Call {
    number: Number,
    arguments: [u64; 6],
    /// The thread that makes it.
    thread: u32,
}

impl Calls {
    /// With `record`, calls that no list has go on.
    pub fn new(record: bool) -> Calls {
        Calls { record, noted: Mutex::default(), listeners: AtomicUsize::new(0) }
    }

    /// Has a thread answer for a worker until that ends.
    pub fn answer_for(self: &Arc<Calls>, worker: u32, listener: OwnedFd) {
        let calls = Arc::clone(self);
        if calls.listeners.fetch_add(1, Ordering::Relaxed) >= MOST {
            calls.listeners.fetch_sub(1, Ordering::Relaxed);
            tracing::debug!(worker, "refused system calls of one more worker are not judged");
            return;
        }
        let thread = std::thread::Builder::new().name("calls".to_owned()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            if let Err(error) = calls.serve(worker, listener.as_fd()) {
                tracing::debug!(worker, %error, "system calls of a worker are not judged any more");
            }
            calls.listeners.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = spawned {
            self.listeners.fetch_sub(1, Ordering::Relaxed);
            tracing::debug!(worker, %error, "system calls of a worker are not judged");
        }
    }

    /// The names of the calls that were refused or recorded.
    pub fn noted(&self) -> Vec<String> {
        self.noted.lock().iter().map(|number| named(*number)).collect()
    }

    fn serve(&self, worker: u32, listener: BorrowedFd<'_>) -> io::Result<()> {
        let (mut refused, mut of_threads) = (0, 0);
        while refused < MOST_REFUSED && of_threads < MOST_OF_THREADS {
            let mut room = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
            match poll(&mut room, None) {
                Err(rustix::io::Errno::INTR) => continue,
                outcome => outcome?,
            };
            if !room[0].revents().contains(PollFlags::IN) {
                // No process has the filter any more.
                return Ok(());
            }
            let Some((id, call)) = receive(listener)? else { continue };
            let answer = self.judge(&call);
            match answer {
                Answer::OfOwnThread => of_threads += 1,
                Answer::Recorded => self.note(worker, call.number),
                Answer::Fails(_) => {
                    refused += 1;
                    self.note(worker, call.number);
                }
            }
            send(listener, id, &answer)?;
        }
        tracing::warn!(
            worker,
            "a worker makes refused system calls again and again; they fail unseen now"
        );
        Ok(())
    }

    fn judge(&self, call: &Call) -> Answer {
        match calls::thread_named(call.number, &call.arguments) {
            Some(thread) if is_of_process(call.thread, thread) => return Answer::OfOwnThread,
            Some(_) => return Answer::Fails(libc::EPERM),
            None => {}
        }
        if self.record {
            return Answer::Recorded;
        }
        // Who meets a call that is new knows what to do without.
        let is_new = calls::name(call.number).is_none();
        Answer::Fails(if is_new { libc::ENOSYS } else { libc::EPERM })
    }

    /// Notes a call, once by its name.
    fn note(&self, worker: u32, number: Number) {
        if !self.noted.lock().insert(number) {
            return;
        }
        let call = named(number);
        if self.record {
            tracing::info!(
                call,
                worker,
                "a worker made a system call that `--sandbox-calls allow` refuses"
            );
        } else {
            tracing::warn!(
                call,
                worker,
                "the sandbox refused a system call of a worker; if a program fails because of it, `outboard serve --sandbox-calls deny` refuses fewer"
            );
        }
    }
}

/// A call's name, or its number.
fn named(number: Number) -> String {
    calls::name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// Whether a thread is of the same process as another one.
fn is_of_process(one: u32, thread: u32) -> bool {
    Path::new(&format!("/proc/{one}/task/{thread}")).exists()
}

/// The next call, unless who made it has been interrupted meanwhile.
fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<(u64, Call)>> {
    const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
    // SAFETY: all zero is a value of it, and what the kernel asks for.
    let mut told: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one such structure.
    if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut told) } == 0 {
        let libc::seccomp_data { nr, args, .. } = told.data;
        let call = Call { number: Number::from(nr), arguments: args, thread: told.pid };
        return Ok(Some((told.id, call)));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR) => Ok(None),
        _ => Err(error),
    }
}

fn send(listener: BorrowedFd<'_>, id: u64, answer: &Answer) -> io::Result<()> {
    const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
    let (error, flags) = match answer {
        Answer::Fails(error) => (-error, 0),
        Answer::OfOwnThread | Answer::Recorded => {
            (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
        }
    };
    let mut said = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the kernel reads one such structure.
    if unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut said) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Who made the call has been interrupted.
    if error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: Number, arguments: [u64; 2]) -> Call {
        let [first, second] = arguments;
        let thread = std::process::id();
        Call { number, arguments: [first, second, 0, 0, 0, 0], thread }
    }

    #[test]
    fn calls_about_own_threads_go_on_and_others_fail() {
        let own = u64::from(std::process::id());
        let parent = u64::from(std::os::unix::process::parent_id());
        for record in [false, true] {
            let calls = Calls::new(record);
            let judge = |number, arguments| calls.judge(&call(number, arguments));
            assert_eq!(judge(libc::SYS_sched_setaffinity, [own, 8]), Answer::OfOwnThread);
            assert_eq!(judge(libc::SYS_sched_setaffinity, [parent, 8]), Answer::Fails(libc::EPERM));
            assert_eq!(judge(libc::SYS_setpriority, [0, own]), Answer::OfOwnThread);
            assert_eq!(judge(libc::SYS_setpriority, [0, parent]), Answer::Fails(libc::EPERM));
        }
    }

    #[test]
    fn what_no_list_has_is_refused_or_recorded() {
        let judge = |record, number| Calls::new(record).judge(&call(number, [0; 2]));
        assert_eq!(judge(false, libc::SYS_sync), Answer::Fails(libc::EPERM));
        assert_eq!(judge(false, calls::NEWEST + 1), Answer::Fails(libc::ENOSYS));
        assert_eq!(judge(true, libc::SYS_sync), Answer::Recorded);
    }
}
