//! Threads of the device inside somebody else's process.

use std::mem::MaybeUninit;

/// Stack of a thread that may run kernels; address space only, until it is used.
const STACK: usize = 8 << 20;

/// Starts a thread that nobody joins and that takes none of the process's signals. False if the
/// system has no room for it.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are of the right type, and the first is filled before it is used. A thread
    // inherits the mask of its maker, so signals are blocked here for a moment, and the program's
    // handlers never run on our threads.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned =
        std::thread::Builder::new().name(name.into()).stack_size(STACK).spawn(body).is_ok();
    // SAFETY: `before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    spawned
}
