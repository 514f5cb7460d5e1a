//! Why nothing works any more in this process: it is a forked child, which shares no connection and
//! no thread with its parent, or it exits.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use outboard_abi::CUresult;

/// The result of every call that needs the driver, or 0 while there is one.
static GONE: AtomicU32 = AtomicU32::new(0);

const FORKED: CUresult = CUresult::CUDA_ERROR_NOT_INITIALIZED;
const EXITING: CUresult = CUresult::CUDA_ERROR_DEINITIALIZED;

/// The result of a call that needs the driver, if the process has none any more.
#[inline]
pub(crate) fn check() -> Result<(), CUresult> {
    match GONE.load(Ordering::Relaxed) {
        0 => Ok(()),
        why => Err(CUresult(why)),
    }
}

/// Whether this process was forked from one that uses the library.
#[inline]
pub fn is_forked() -> bool {
    GONE.load(Ordering::Relaxed) == FORKED.0
}

/// Whether the process exits.
#[inline]
pub(crate) fn is_exiting() -> bool {
    GONE.load(Ordering::Acquire) == EXITING.0
}

/// In the child: like the native driver, we do nothing there.
pub(crate) fn forked() {
    GONE.store(FORKED.0, Ordering::Relaxed);
}

/// The thread that exits, as the system's library knows it.
static WHO: AtomicUsize = AtomicUsize::new(0);

/// For how long another thread's calls do not return once the process exits: what they would return
/// to is being taken down, such as the tables of CUDA's runtime. NVIDIA's driver is busy ending
/// contexts for about as long. A destructor may wait for such a thread, so it is not for ever.
const PAUSE: Duration = Duration::from_millis(200);

/// For the end of a call: returns late to a thread that must not notice how the process exits.
#[inline]
pub(crate) fn before_return() {
    if is_exiting() {
        pause();
    }
}

#[cold]
fn pause() {
    // SAFETY: it only asks for this thread's own handle.
    if unsafe { libc::pthread_self() } as usize != WHO.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
    }
}

/// The process exits. A child stays one.
pub(crate) fn exiting() {
    // SAFETY: as above.
    WHO.store(unsafe { libc::pthread_self() } as usize, Ordering::Relaxed);
    let _ = GONE.compare_exchange(0, EXITING.0, Ordering::Release, Ordering::Relaxed);
}
