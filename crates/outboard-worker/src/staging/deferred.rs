//! Copies that streams of the worker's own do, when it is their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUctx_st, CUresult, CUstream, CUstream_st};
use outboard_driver::{Table, call};
use outboard_session::groups::Groups;

use super::account::Share;
use super::memory::{Pool, View};
use super::transfer::{CopySite, FailureReporter, Queue, Transfer};
use super::watch::Watcher;
use crate::io::Bulk;
use crate::objects::Handle;

/// A copy that a stream of the worker's own will do.
pub(super) struct DeferredCopy {
    pub(super) number: u64,
    pub(super) groups: Groups,
    /// Of the program's stream, as what follows.
    queue: Queue,
    pub(super) bulk: Bulk,
    pub(super) watcher: Arc<Watcher>,
    pub(super) pool: Arc<Pool>,
    pub(super) failures: FailureReporter,
}

impl DeferredCopy {
    /// `flags` are those of the line of the program's stream.
    pub(super) fn new(
        site: &CopySite<'_>,
        number: u64,
        groups: Groups,
        flags: View,
    ) -> DeferredCopy {
        DeferredCopy {
            number,
            groups,
            queue: site.queue(groups, flags),
            bulk: site.bulk.clone(),
            watcher: Arc::clone(site.watcher),
            pool: Arc::clone(site.pool),
            failures: FailureReporter::of(site),
        }
    }

    pub(super) fn table(&self) -> &'static Table {
        self.queue.table
    }

    pub(super) fn context(&self) -> Handle<CUctx_st> {
        self.queue.context
    }

    /// Makes the copy's context current on this thread.
    pub(super) fn enter(&self) -> Result<(), CUresult> {
        call!(self.queue.table, cuCtxSetCurrent(self.context().get()))
    }

    /// The stream that copies of this direction share. The context is current.
    pub(super) fn shared_stream(&self, to_device: bool) -> Result<Handle<CUstream_st>, CUresult> {
        self.pool.shared_copy_stream(self.queue.table, to_device)
    }

    /// The copy in such a stream, with memory.
    pub(super) fn transfer(
        &self,
        stream: Handle<CUstream_st>,
        share: Option<Share>,
    ) -> Result<Transfer, CUresult> {
        let piece = self.pool.take(self.queue.table, self.groups.staging())?;
        let piece = piece.for_lanes(&self.bulk);
        Ok(Transfer {
            number: self.number,
            queue: Queue { view: piece.view(), stream, ..self.queue },
            bulk: self.bulk.clone(),
            watcher: Arc::clone(&self.watcher),
            pool: Arc::clone(&self.pool),
            piece,
            _share: share,
        })
    }

    /// As of [`Queue::liveness_check`].
    pub(super) fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.queue.liveness_check(&self.pool)
    }
}

/// A stream that nothing else uses.
pub(super) struct ExclusiveStream {
    pool: Arc<Pool>,
    stream: Handle<CUstream_st>,
    /// Work is left in it: it ends with its context.
    is_abandoned: AtomicBool,
}

/// Streams of one context that may stand still with work that waits for a peer. More would share
/// hardware queues with streams that it waits for.
const MAX_WAITING_STREAMS: usize = 12;

impl ExclusiveStream {
    /// One in which work may stand still. The context is current. `None` if there are enough of
    /// them.
    pub(super) fn for_waiting(
        table: &'static Table,
        pool: &Arc<Pool>,
    ) -> Result<Option<ExclusiveStream>, CUresult> {
        ExclusiveStream::of(table, pool, MAX_WAITING_STREAMS)
    }

    /// One whose work does not wait for other streams' work. The context is current.
    pub(super) fn for_copying(
        table: &'static Table,
        pool: &Arc<Pool>,
    ) -> Result<ExclusiveStream, CUresult> {
        let stream = ExclusiveStream::of(table, pool, usize::MAX)?;
        stream.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn of(
        table: &'static Table,
        pool: &Arc<Pool>,
        most: usize,
    ) -> Result<Option<ExclusiveStream>, CUresult> {
        let stream = pool.exclusive_stream(table, most)?;
        Ok(stream.map(|stream| ExclusiveStream {
            pool: Arc::clone(pool),
            stream,
            is_abandoned: AtomicBool::new(false),
        }))
    }

    pub(super) fn get(&self) -> CUstream {
        self.stream.get()
    }

    /// Work is left in it: nobody is to use it again.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Whether work is left in it.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }
}

impl Drop for ExclusiveStream {
    fn drop(&mut self) {
        self.pool.return_exclusive((!self.is_abandoned()).then_some(self.stream));
    }
}
