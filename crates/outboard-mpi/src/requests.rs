//! Messages that are under way, with the host memory in place of device memory.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::mpi::{Requests, SUCCESS, Status, form};
use crate::persistent;
use crate::receiving::Receiving;
use crate::sending::Sending;

/// What is kept until its message is done.
pub(crate) enum UnderWay {
    Sent(Sending),
    Received(Receiving),
    /// One request is for both.
    Both(Sending, Receiving),
}

// SAFETY: the program's address in it is only handed to MPI and the driver, which any thread may.
unsafe impl Send for UnderWay {}

/// Several messages can have one request: some MPIs give one to all that are done at once. It does
/// not matter which of these is done. Of others the last counts, as the program has given up the
/// earlier ones.
static ALL: LazyLock<Mutex<HashMap<u64, Vec<UnderWay>>>> = LazyLock::new(Mutex::default);
/// How many there are: most programs have none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn all() -> MutexGuard<'static, HashMap<u64, Vec<UnderWay>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the memory of a message until its request is done, if that is needed.
///
/// # Safety
/// MPI has written the request.
pub(crate) unsafe fn keep(request: Requests, message: UnderWay) {
    let is_needed = match &message {
        UnderWay::Sent(sent) => sent.is_needed(),
        UnderWay::Received(received) => received.is_watched(),
        UnderWay::Both(sent, received) => sent.is_needed() || received.is_watched(),
    };
    if !is_needed {
        return;
    }
    // SAFETY: as the caller says.
    let number = unsafe { form().requests(request, 1) }[0];
    let mut all = all();
    all.entry(number).or_default().push(message);
    COUNT.store(all.len(), Ordering::Relaxed);
}

/// Whether any is under way.
pub(crate) fn are_there() -> bool {
    COUNT.load(Ordering::Relaxed) > 0 || persistent::are_there()
}

/// A request is done and stays: its status says what the program expects.
pub(crate) fn look(number: u64, status: Status) {
    let mut all = all();
    match all.get_mut(&number).and_then(|those| those.last_mut()) {
        Some(UnderWay::Received(receiving) | UnderWay::Both(_, receiving)) => {
            receiving.tell(status);
        }
        Some(UnderWay::Sent(_)) => {}
        None => persistent::receiving(number).into_iter().for_each(|mut it| it.tell(status)),
    }
}

/// A request is done, if it is one of these; what the call returns that has found out.
pub(crate) fn done(number: u64, status: Status) -> c_int {
    let found = {
        let mut all = all();
        let found = all.get_mut(&number).and_then(Vec::pop);
        if all.get(&number).is_some_and(Vec::is_empty) {
            all.remove(&number);
        }
        COUNT.store(all.len(), Ordering::Relaxed);
        found
    };
    match found {
        Some(UnderWay::Received(receiving) | UnderWay::Both(_, receiving)) => {
            receiving.finish(status)
        }
        Some(UnderWay::Sent(_)) => SUCCESS,
        None => persistent::receiving(number).map_or(SUCCESS, |again| again.finish(status)),
    }
}
