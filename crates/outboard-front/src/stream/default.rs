//! Default streams: which one a call means, and those of threads and green contexts.

use core::cell::RefCell;
use std::sync::atomic::AtomicI32;

use outboard_abi::{CUresult, CUstream};

use super::{LEGACY, NON_BLOCKING, Object, PER_THREAD, create, destroy, resolve};
use crate::backend::{Backend, ObjectId, Result, StreamId};
use crate::context::Here;
use crate::process::{Front, Process};

/// Which default stream a call without a stream argument means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultStream {
    /// `CU_STREAM_LEGACY`.
    Legacy,
    /// `CU_STREAM_PER_THREAD`: the `_ptds` forms.
    PerThread,
}

/// The default stream of a thread in a context or green context.
struct Default {
    front: &'static Front,
    place: u64,
    handle: u64,
}

/// The default streams of one thread.
struct OfThread(RefCell<Vec<Default>>);

impl Drop for OfThread {
    fn drop(&mut self) {
        for default in self.0.get_mut() {
            default.front.streams.orphans.lock().push(default.handle);
        }
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
pub(crate) fn resolve_default<B: Backend>(
    process: &'static Process<B>,
    default: DefaultStream,
) -> Result<(Here, StreamId)> {
    let handle = match default {
        DefaultStream::Legacy => LEGACY,
        DefaultStream::PerThread => PER_THREAD,
    };
    resolve(process, handle as CUstream)
}

/// The stream used as the default stream of a green context: the legacy stream itself is the
/// primary context's.
#[inline]
pub(super) fn of_green<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
) -> Result<Option<u64>> {
    let Some(green) = here.green() else { return Ok(None) };
    let mut known = green.default_stream.lock();
    if known.is_none() {
        let make = |handle| {
            let (number, priority) = (process.streams.number(), AtomicI32::new(0));
            let (context, id, flags) = (here.named(), here.id, NON_BLOCKING);
            Object { handle, context, id, number, flags, priority }
        };
        let handle =
            process.streams.table.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?.handle;
        if let Err(error) =
            process.backend.green_default_stream(here.id, green.id(), ObjectId(handle))
        {
            process.streams.table.remove(handle);
            return here.note(Err(error));
        }
        *known = Some(handle);
    }
    Ok(*known)
}

/// The calling thread's default stream in a context, made at its first use.
pub(crate) fn of_thread<B: Backend>(process: &'static Process<B>, here: &Here) -> Result<u64> {
    let place = here.green().map_or(u64::from(here.id.0), |green| green.handle);
    let front: &'static Front = process;
    let is_it = |default: &&Default| default.place == place && std::ptr::eq(default.front, front);
    let known = OF_THREAD.try_with(|of_thread| {
        of_thread.0.borrow().iter().find(is_it).map(|default| default.handle)
    });
    match known {
        Ok(Some(handle)) => return Ok(handle),
        Ok(None) => {}
        // The thread is ending, and its streams have ended before.
        Err(_) => return Err(CUresult::CUDA_ERROR_DEINITIALIZED),
    }
    for orphan in std::mem::take(&mut *process.streams.orphans.lock()) {
        let _ = destroy(process, orphan);
    }
    let handle = create(process, here, 0, 0)?;
    let _ = OF_THREAD
        .try_with(|of_thread| of_thread.0.borrow_mut().push(Default { front, place, handle }));
    Ok(handle)
}
