//! Copies that streams of the worker's own do, when it is their turn.

use std::sync::Arc;

use outboard_abi::{CUctx_st, CUresult, CUstream, CUstream_st};
use outboard_driver::{Table, call};
use outboard_session::groups::Groups;
use parking_lot::Mutex;

use super::account::Share;
use super::memory::{Pool, View};
use super::transfer::{Failing, Place, Queue, Transfer};
use super::watch::{Moving, Watcher};
use crate::io::Bulk;
use crate::objects::Handle;

/// A copy that a stream of the worker's own will do.
pub(super) struct Own {
    pub(super) number: u64,
    pub(super) groups: Groups,
    /// Of the program's stream, as what follows.
    queue: Queue,
    pub(super) bulk: Bulk,
    pub(super) watcher: Arc<Watcher>,
    pub(super) pool: Arc<Pool>,
    pub(super) failing: Failing,
}

/// The copy that has been started; an error if it could not be.
type Start = Result<Box<dyn Moving>, ()>;

/// What came of a start, once that is known.
#[derive(Clone, Default)]
pub(super) struct Started(Arc<Mutex<Option<Start>>>);

impl Started {
    /// Once the start is over.
    pub(super) fn take(&self) -> Option<Start> {
        self.0.lock().take()
    }
}

/// Says how a start went when it is dropped, whatever became of it.
pub(super) struct Say {
    started: Started,
    watcher: Arc<Watcher>,
}

impl Say {
    pub(super) fn new(started: &Started, watcher: &Arc<Watcher>) -> Say {
        Say { started: started.clone(), watcher: Arc::clone(watcher) }
    }

    pub(super) fn say(&self, result: Start) {
        self.started.0.lock().get_or_insert(result);
        self.watcher.nudge();
    }
}

impl Drop for Say {
    fn drop(&mut self) {
        self.say(Err(()));
    }
}

impl Own {
    /// `flags` are those of the line of the program's stream.
    pub(super) fn new(place: &Place<'_>, number: u64, groups: Groups, flags: View) -> Own {
        Own {
            number,
            groups,
            queue: place.queue(groups, flags),
            bulk: place.bulk.clone(),
            watcher: Arc::clone(place.watcher),
            pool: Arc::clone(place.pool),
            failing: Failing::of(place),
        }
    }

    pub(super) fn table(&self) -> &'static Table {
        self.queue.table
    }

    /// Makes the copy's context current on this thread.
    pub(super) fn enter(&self) -> Result<(), CUresult> {
        let context: Handle<CUctx_st> = self.queue.context;
        call!(self.queue.table, cuCtxSetCurrent(context.get()))
    }

    /// The stream that copies of this direction share. The context is current.
    pub(super) fn shared_stream(&self, to_device: bool) -> Result<Handle<CUstream_st>, CUresult> {
        self.pool.own_stream(self.queue.table, to_device)
    }

    /// The copy in such a stream, with memory.
    pub(super) fn transfer(
        &self,
        stream: Handle<CUstream_st>,
        share: Option<Share>,
    ) -> Result<Transfer, CUresult> {
        let piece = self.pool.take(self.queue.table, self.groups.staging())?;
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

    /// As of [`Queue::alive`].
    pub(super) fn alive(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.queue.alive(&self.pool)
    }
}

/// A stream that nothing else uses.
pub(super) struct LoneStream {
    pool: Arc<Pool>,
    stream: Option<Handle<CUstream_st>>,
}

/// Streams of one context that may stand still with work that waits for a peer. More would share
/// hardware queues with streams that it waits for.
const MOST_STANDING: usize = 12;

impl LoneStream {
    /// One in which work may stand still. The context is current. `None` if there are enough of
    /// them.
    pub(super) fn to_stand(
        table: &'static Table,
        pool: &Arc<Pool>,
    ) -> Result<Option<LoneStream>, CUresult> {
        LoneStream::of(table, pool, MOST_STANDING)
    }

    /// One whose work does not wait for other streams' work. The context is current.
    pub(super) fn to_move(table: &'static Table, pool: &Arc<Pool>) -> Result<LoneStream, CUresult> {
        let stream = LoneStream::of(table, pool, usize::MAX)?;
        stream.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn of(
        table: &'static Table,
        pool: &Arc<Pool>,
        most: usize,
    ) -> Result<Option<LoneStream>, CUresult> {
        let stream = pool.lone_stream(table, most)?;
        Ok(stream.map(|stream| LoneStream { pool: Arc::clone(pool), stream: Some(stream) }))
    }

    pub(super) fn get(&self) -> CUstream {
        self.stream.map_or(core::ptr::null_mut(), |stream| stream.get())
    }

    /// Work is left in it: it ends with its context.
    pub(super) fn leave(mut self) {
        self.stream = None;
    }
}

impl Drop for LoneStream {
    fn drop(&mut self) {
        self.pool.take_back(self.stream.take());
    }
}
