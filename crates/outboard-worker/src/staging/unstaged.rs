//! Copies between device memory that an adapter knows and memory that the client lends to it: they
//! need no staging memory. The program's stream stands still at such a copy until its bytes have
//! moved.
//!
//! An adapter may fail in the middle, and a chunk may come or go with its bytes then: the lane's
//! thread has a stream of its own copy them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::{CUctx_st, CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_session::chunks::Cut;
use outboard_wire::DevicePtr;
use parking_lot::Mutex;

use super::deferred::{DeferredCopy, ExclusiveStream};
use super::memory::Pool;
use super::registered::{RegisteredMemory, flush};
use super::starting::StartReport;
use super::transfer::{DeviceSide, FailureReporter, liveness_check};
use super::watch::{Moving, Step, Watched, Watcher};
use crate::io::{Bulk, DeviceBytes, Sink};
use crate::objects::Handle;

/// Such a copy.
struct Unstaged {
    number: u64,
    cut: Cut,
    base: DevicePtr,
    memory: Arc<DeviceMemory>,
    bulk: Bulk,
    watcher: Arc<Watcher>,
    /// Chunks that have moved.
    moved: AtomicU32,
    /// All have, and the device's work sees them.
    is_over: AtomicBool,
}

/// Memory of a context's device, reached by its driver.
struct DeviceMemory {
    table: &'static Table,
    context: Handle<CUctx_st>,
    pool: Arc<Pool>,
    /// Made when it is first needed.
    stream: Mutex<Option<ExclusiveStream>>,
    failures: FailureReporter,
    /// The context has ended or failed.
    is_gone: AtomicBool,
    _registered: Arc<RegisteredMemory>,
}

// SAFETY: a handle is a name; see `Handle`.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    fn enter(&self) -> Result<(), CUresult> {
        call!(self.table, cuCtxSetCurrent(self.context.get()))
    }

    /// Has the stream do something, and waits for that. The program is told if it fails.
    fn in_stream(&self, queue: impl FnOnce(CUstream) -> Result<(), CUresult>) {
        if self.is_gone.load(Ordering::Acquire) {
            return;
        }
        let mut stream = self.stream.lock();
        let done = self.enter().and_then(|()| {
            let stream = match &mut *stream {
                Some(stream) => stream,
                none => none.insert(ExclusiveStream::for_copying(self.table, &self.pool)?),
            };
            queue(stream.get())?;
            call!(self.table, cuStreamSynchronize(stream.get()))
        });
        if let Err(error) = done {
            self.failures.report(error);
        }
    }
}

impl DeviceBytes for DeviceMemory {
    fn read(&self, address: u64, to: &mut [u8]) {
        let (to, bytes) = (to.as_mut_ptr().cast(), to.len());
        self.in_stream(|stream| {
            call!(self.table, cuMemcpyDtoHAsync_v2(to, address, bytes, stream))
        });
    }

    fn write(&self, address: u64, from: &[u8]) {
        let (from, bytes) = (from.as_ptr().cast(), from.len());
        self.in_stream(|stream| {
            call!(self.table, cuMemcpyHtoDAsync_v2(address, from, bytes, stream))
        });
    }
}

impl Unstaged {
    fn new(
        own: &DeferredCopy,
        registered: &Arc<RegisteredMemory>,
        side: &DeviceSide,
    ) -> Result<Arc<Unstaged>, CUresult> {
        let DeviceSide::Linear(base) = *side else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let memory = Arc::new(DeviceMemory {
            table: own.table(),
            context: own.context(),
            pool: Arc::clone(&own.pool),
            stream: Mutex::default(),
            failures: own.failures.clone(),
            is_gone: AtomicBool::new(false),
            _registered: Arc::clone(registered),
        });
        Ok(Arc::new(Unstaged {
            number: own.number,
            cut: own.groups.cut(),
            base,
            memory,
            bulk: own.bulk.clone(),
            watcher: Arc::clone(&own.watcher),
            moved: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
        }))
    }

    fn address(&self, index: u32) -> u64 {
        self.base.offset(self.cut.offset(index)).0
    }

    /// A chunk has moved; `end` is run behind the last one.
    fn has_moved(&self, end: impl FnOnce()) {
        if self.moved.fetch_add(1, Ordering::AcqRel) + 1 == self.cut.count() {
            end();
            self.is_over.store(true, Ordering::Release);
            self.watcher.nudge();
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

// SAFETY: all chunks are granted when the stream has come to the copy, and the program's memory is
// the copy's until it goes on.
unsafe impl Sink for Unstaged {
    fn slot(&self, index: u32, _len: u32) -> *mut u8 {
        self.address(index) as *mut u8
    }

    fn device(&self) -> Option<&dyn DeviceBytes> {
        Some(&*self.memory)
    }

    fn filled(&self, _index: u32) {
        self.has_moved(|| {
            let flushed = self.memory.enter().and_then(|()| flush(self.memory.table));
            if let Err(error) = flushed {
                self.memory.failures.report(error);
            }
        });
    }
}

/// The watcher's part of it.
struct Passing {
    copy: Arc<Unstaged>,
    /// Whether the chunks of one to the host are still to be given to the lanes.
    to_give: bool,
    to_device: bool,
    gave_up: bool,
}

/// Starts a copy to the host.
pub(super) fn copy_out(
    own: &DeferredCopy,
    registered: &Arc<RegisteredMemory>,
    side: &DeviceSide,
    report: &StartReport,
) -> Result<(), CUresult> {
    let copy = Unstaged::new(own, registered, side)?;
    report.moves(Passing { copy, to_give: true, to_device: false, gave_up: false });
    Ok(())
}

/// Starts a copy to the device, whose bytes `ask` asks for.
pub(super) fn copy_in(
    own: &DeferredCopy,
    registered: &Arc<RegisteredMemory>,
    side: &DeviceSide,
    report: &StartReport,
    ask: impl FnOnce(),
) -> Result<(), CUresult> {
    let copy = Unstaged::new(own, registered, side)?;
    own.bulk.set_sink(own.number, Arc::clone(&copy) as Arc<dyn Sink>);
    report.moves(Passing { copy, to_give: false, to_device: true, gave_up: false });
    own.bulk.grant(own.number, own.groups.cut().count());
    ask();
    Ok(())
}

impl Passing {
    fn give(&self) {
        let Unstaged { number, cut, bulk, .. } = &*self.copy;
        for index in 0..cut.count() {
            let moved = Arc::clone(&self.copy);
            let from = Arc::clone(&self.copy.memory) as Arc<dyn DeviceBytes>;
            let (address, len) = (self.copy.address(index), cut.len_of(index));
            // SAFETY: the program's stream stands still until all chunks have been sent, and the
            // registration keeps the memory.
            unsafe {
                bulk.send_from_device(*number, (index, len), (address, from), move || {
                    moved.has_moved(|| ());
                });
            }
        }
    }
}

impl Moving for Passing {
    fn is_copied(&self) -> bool {
        self.copy.is_over()
    }

    fn has_begun(&self) -> bool {
        self.copy.moved.load(Ordering::Acquire) > 0
    }

    /// Nobody has a lane of the client's break off: its bytes come.
    fn break_off(&mut self) {}
}

impl Watched for Passing {
    fn step(&mut self) -> Step {
        let Unstaged { number, bulk, .. } = &*self.copy;
        let is_over = self.copy.is_over();
        if is_over || self.gave_up {
            if self.to_device {
                bulk.done(*number, is_over);
            } else if self.to_give {
                bulk.cancel(*number, 0);
            }
            return Step::Ended;
        }
        if std::mem::take(&mut self.to_give) {
            self.give();
            return Step::Moved;
        }
        Step::ForBytes
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        let DeviceMemory { pool, table, context, .. } = &*self.copy.memory;
        liveness_check(pool, table, *context)
    }

    fn give_up(&mut self) {
        self.gave_up = true;
        self.copy.memory.is_gone.store(true, Ordering::Release);
    }
}
