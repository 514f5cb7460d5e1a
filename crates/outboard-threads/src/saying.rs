//! What is written in a thread of the program: lines for people, and files.

use std::fmt::Display;
use std::io::Write as _;
use std::mem::MaybeUninit;

/// Writes a line to standard error. If that is closed or takes no more, nobody reads the line.
pub fn say(what: impl Display) {
    writing(|| _ = writeln!(std::io::stderr(), "outboard: {what}"));
}

/// Writes to files. If the program's limits allow no file as large (`ulimit -f`), the write fails,
/// and the signal that says so as well does not reach the program.
pub fn writing<T>(write: impl FnOnce() -> T) -> T {
    let Some(blocked) = Blocked::new() else { return write() };
    let result = write();
    blocked.end();
    result
}

/// The signal is blocked in this thread.
struct Blocked {
    before: libc::sigset_t,
    /// The program's own writes have raised it before.
    was_pending: bool,
}

impl Blocked {
    fn new() -> Option<Blocked> {
        let (mut before, mut pending) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the calls read the one set and, on success, have written the other.
        unsafe {
            let own = only();
            let set = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const own, before.as_mut_ptr());
            if set != 0 {
                return None;
            }
            let was_pending = libc::sigpending(pending.as_mut_ptr()) == 0
                && libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1;
            Some(Blocked { before: before.assume_init(), was_pending })
        }
    }

    fn end(self) {
        let own = only();
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: all sets are initialised; nothing is to be written.
        unsafe {
            if !self.was_pending {
                libc::sigtimedwait(&raw const own, std::ptr::null_mut(), &raw const at_once);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// The set of this signal alone.
fn only() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, so that sigaddset works on one that is; the number
    // is a signal of this system.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
        set.assume_init()
    }
}
