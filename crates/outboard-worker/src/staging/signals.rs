//! Events that streams of another server wait for, and the waits of streams here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_abi::{CUctx_st, CUevent, CUresult};
use outboard_driver::{Table, call};

use super::deferred::ExclusiveStream;
use super::memory::{Piece, Pool};
use super::transfer::{CopySite, FailureReporter, LOST, liveness_check};
use super::watch::{CopyDescription, Step, Watched};
use crate::io::{Bulk, Half};
use crate::memops::{self, Operation};
use crate::objects::Handle;

/// Has a stream wait until the peer says that what a number stands for has happened.
pub(crate) fn wait_for_peer(site: &CopySite<'_>, number: u64, half: &Half) -> Result<(), CUresult> {
    if half.reached() == Some(true) {
        site.bulk.end(number);
        return Ok(());
    }
    let turn = site.pool.line(site)?.queue(site)?;
    let (bulk, failures) = (site.bulk.clone(), FailureReporter::of(site));
    half.when_reached(move |well| {
        bulk.end(number);
        if !well {
            failures.report(LOST);
        }
        turn.end();
    });
    Ok(())
}

/// Tells the peer when an event has happened. `false` if this is to be seen to in another way: too
/// much stands still already.
pub(crate) fn tell_peer(
    site: &CopySite<'_>,
    number: u64,
    event: CUevent,
) -> Result<bool, CUresult> {
    let Some(stream) = ExclusiveStream::for_waiting(site.table, site.pool)? else {
        return Ok(false);
    };
    let piece = site.pool.take(site.table, 0)?;
    let told = Operation::Write(piece.view().device_flag(HAPPENED), 1);
    call!(site.table, cuStreamWaitEvent(stream.get(), event, 0))?;
    memops::queue(site.table, stream.get(), &[told])?;
    let (bulk, pool) = (site.bulk.clone(), Arc::clone(site.pool));
    let (table, context) = (site.table, Handle::new(site.context));
    let telling = Telling { bulk, number, piece, stream: Some(stream), table, context, pool };
    site.watcher
        .add(Box::new(telling), CopyDescription { to_device: false, way: "peer", bytes: 0 });
    Ok(true)
}

/// The word of a [`Telling`]'s flags that the device writes.
const HAPPENED: usize = 0;

/// An event that a peer is told of.
struct Telling {
    bulk: Bulk,
    number: u64,
    piece: Piece,
    stream: Option<ExclusiveStream>,
    table: &'static Table,
    context: Handle<CUctx_st>,
    pool: Arc<Pool>,
}

impl Watched for Telling {
    fn step(&mut self) -> Step {
        if self.piece.flag(HAPPENED).load(Ordering::Acquire) == 0 && self.stream.is_some() {
            return Step::ForDevice;
        }
        self.bulk.reached(self.number, self.stream.is_some());
        Step::Ended
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        liveness_check(&self.pool, self.table, self.context)
    }

    fn give_up(&mut self) {
        self.piece.leak();
        self.stream.take().into_iter().for_each(ExclusiveStream::abandon);
    }
}
