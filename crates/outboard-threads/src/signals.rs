//! The program's signals are for its own threads.

use std::mem::MaybeUninit;

/// Signals that a thread's own instructions raise; to block them would turn an error into a silent
/// end.
const OWN_DOING: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Does something with all other signals blocked: a thread that it starts inherits the mask.
pub(crate) fn blocked<T>(start: impl FnOnce() -> T) -> T {
    let before = block();
    let result = start();
    if let Some(before) = before {
        // SAFETY: `before` is the mask that the system handed out below; no old mask is asked for.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
    }
    result
}

/// Blocks signals in this thread; the mask as it was, if it was changed.
fn block() -> Option<libc::sigset_t> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set, so that sigdelset works on one that is; the numbers
    // are signals of this system; pthread_sigmask reads the one set and, on success, has written
    // the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in OWN_DOING {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        let changed =
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0;
        changed.then(|| before.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> libc::sigset_t {
        let mut now = MaybeUninit::uninit();
        // SAFETY: no new mask is set; on success, which is certain here, the current one has been
        // written.
        unsafe {
            assert_eq!(
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), now.as_mut_ptr()),
                0
            );
            now.assume_init()
        }
    }

    fn blocks(mask: &libc::sigset_t, signal: libc::c_int) -> bool {
        // SAFETY: the mask is initialised, the number a signal of this system.
        unsafe { libc::sigismember(mask, signal) == 1 }
    }

    #[test]
    fn a_thread_takes_no_signals_and_its_maker_still_does() {
        let before = mask();
        let (send, receive) = std::sync::mpsc::channel();
        crate::start("test", move || send.send(mask()).unwrap()).unwrap();
        let within = receive.recv().unwrap();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1, libc::SIGCHLD] {
            assert!(blocks(&within, signal));
            assert_eq!(blocks(&mask(), signal), blocks(&before, signal));
        }
        assert!(!blocks(&within, libc::SIGSEGV));
    }
}
