//! Closing connections in a forked child and at the end of the process.
//!
//! A child inherits its parent's descriptors. As long as it lives, the worker would not see the
//! parent's end: a program killed with forked children around would keep its memory on the device.
//! Before it runs code of its own, each child therefore replaces every connection's descriptor by
//! one that does nothing.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use super::shared::Shared;

/// The links of this process. An array without locks, since the thread that forks may interrupt any
/// other at any point. A process has a link for each server it uses; those beyond the array are
/// merely not let go of.
static LIVE: [AtomicPtr<Shared>; 64] = [const { AtomicPtr::new(null_mut()) }; 64];

/// From now on, forked children let go of this link.
pub(super) fn register(shared: &Arc<Shared>) {
    static HANDLER: Once = Once::new();
    // SAFETY: the first handler makes only calls that are safe in a forked child; see there. The
    // second is an ordinary function.
    HANDLER.call_once(|| unsafe {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        libc::pthread_atfork(None, None, Some(in_the_child));
        libc::atexit(at_exit);
    });
    let link = Arc::as_ptr(shared).cast_mut();
    for place in &LIVE {
        if place.compare_exchange(null_mut(), link, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// The link is about to be dropped.
pub(super) fn unregister(shared: &Arc<Shared>) {
    let _leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
    let link = Arc::as_ptr(shared).cast_mut();
    for place in &LIVE {
        if place.compare_exchange(link, null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Held while links are looked at as the process ends: none is dropped meanwhile.
static LEAVING: Mutex<()> = Mutex::new(());

/// The process that has the links.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The process is ending by itself: its servers need not keep its sessions.
extern "C" fn at_exit() {
    if std::process::id() != PROCESS.load(Ordering::Relaxed) {
        return;
    }
    let _leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
    for place in &LIVE {
        let link = place.load(Ordering::Acquire);
        // SAFETY: a link takes itself out before it is dropped, and waits for the lock that is held
        // here.
        if let Some(link) = unsafe { link.as_ref() } {
            link.goodbye();
        }
    }
}

extern "C" fn in_the_child() {
    for place in &LIVE {
        let link = place.load(Ordering::Acquire);
        // SAFETY: a link takes itself out before it is dropped, so one that is here is alive in
        // this copy of the memory. Only shared access is made, to what never changes after it was
        // set, and only system calls that are safe in a forked child: no lock is taken and nothing
        // is allocated.
        if let Some(link) = unsafe { link.as_ref() } {
            link.abandon();
        }
    }
}
