//! Default streams: which one a call means, and those of threads and green contexts.

use core::cell::RefCell;
use std::sync::atomic::AtomicI32;

use outboard_abi::{CUresult, CUstream};
use parking_lot::Mutex;

use super::{LEGACY, NON_BLOCKING, Object, PER_THREAD, STREAMS, create, destroy, resolve};
use crate::Driver;
use crate::backend::{ObjectId, Result, Stream};
use crate::context::Here;

/// Which default stream a call without a stream argument means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultStream {
    /// `CU_STREAM_LEGACY`.
    Legacy,
    /// `CU_STREAM_PER_THREAD`: the `_ptds` forms.
    PerThread,
}

/// Default streams of threads that have ended, to be destroyed by the next thread that makes one.
static ORPHANS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// The default streams of one thread, by context or green context.
struct OfThread(RefCell<Vec<(u64, u64)>>);

impl Drop for OfThread {
    fn drop(&mut self) {
        ORPHANS.lock().extend(self.0.borrow().iter().map(|(_, handle)| handle));
    }
}

thread_local! {
    static OF_THREAD: OfThread = const { OfThread(RefCell::new(Vec::new())) };
}

/// For the `_ptsz` forms, in which a null stream is the per-thread one.
pub fn or_per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { PER_THREAD as CUstream } else { stream }
}

/// The context to work in and the default stream that a call means.
pub(crate) fn resolve_default<D: Driver>(default: DefaultStream) -> Result<(Here, Stream)> {
    let handle = match default {
        DefaultStream::Legacy => LEGACY,
        DefaultStream::PerThread => PER_THREAD,
    };
    resolve::<D>(handle as CUstream)
}

/// What stands in for the default stream of a green context: the legacy stream itself is the primary context's.
#[inline]
pub(super) fn of_green<D: Driver>(here: &Here) -> Result<Option<u64>> {
    let Some(green) = here.green() else { return Ok(None) };
    let mut known = green.default_stream.lock();
    if known.is_none() {
        let make = |handle| {
            let priority = AtomicI32::new(0);
            Object { handle, context: here.named(), id: here.id, flags: NON_BLOCKING, priority }
        };
        let handle = STREAMS.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?.handle;
        if let Err(error) = D::get().green_default_stream(here.id, green.id(), ObjectId(handle)) {
            STREAMS.remove(handle);
            return here.note(Err(error));
        }
        *known = Some(handle);
    }
    Ok(*known)
}

/// The calling thread's default stream in a context, made at its first use.
pub(super) fn of_thread<D: Driver>(here: &Here) -> Result<u64> {
    let place = here.green().map_or(u64::from(here.id.0), |green| green.handle);
    let known = OF_THREAD
        .try_with(|of_thread| of_thread.0.borrow().iter().find(|(id, _)| *id == place).map(|(_, handle)| *handle));
    match known {
        Ok(Some(handle)) => return Ok(handle),
        Ok(None) => {}
        // The thread is ending, and its streams have ended before.
        Err(_) => return Err(CUresult::CUDA_ERROR_DEINITIALIZED),
    }
    for orphan in std::mem::take(&mut *ORPHANS.lock()) {
        let _ = destroy::<D>(orphan);
    }
    let handle = create::<D>(here, 0, 0)?;
    let _ = OF_THREAD.try_with(|of_thread| of_thread.0.borrow_mut().push((place, handle)));
    Ok(handle)
}
