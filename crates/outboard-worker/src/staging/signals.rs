//! Events that streams of another server wait for, and the waits of streams here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_abi::{CUctx_st, CUevent, CUresult};
use outboard_driver::{Table, call};

use super::memory::{Piece, Pool};
use super::own::LoneStream;
use super::transfer::{Failing, LOST, Place, alive};
use super::watch::{Step, Watched, What};
use crate::io::{Bulk, Half};
use crate::memops::{self, Operation};
use crate::objects::Handle;

/// Has a stream wait until the peer says that what a number stands for has happened.
pub(crate) fn wait_for_peer(place: &Place<'_>, number: u64, half: &Half) -> Result<(), CUresult> {
    if half.reached() == Some(true) {
        place.bulk.end(number);
        return Ok(());
    }
    let turn = place.pool.line(place)?.queue(place)?;
    let (bulk, failing) = (place.bulk.clone(), Failing::of(place));
    half.when_reached(move |well| {
        bulk.end(number);
        if !well {
            failing.tell(LOST);
        }
        turn.end();
    });
    Ok(())
}

/// Tells the peer when an event has happened. `false` if this is to be seen to in another way: too
/// much stands still already.
pub(crate) fn tell_peer(place: &Place<'_>, number: u64, event: CUevent) -> Result<bool, CUresult> {
    let Some(stream) = LoneStream::to_stand(place.table, place.pool)? else { return Ok(false) };
    let piece = place.pool.take(place.table, 0)?;
    let told = Operation::Write(piece.view().device_flag(HAPPENED), 1);
    call!(place.table, cuStreamWaitEvent(stream.get(), event, 0))?;
    memops::queue(place.table, stream.get(), &[told])?;
    let (bulk, pool) = (place.bulk.clone(), Arc::clone(place.pool));
    let (table, context) = (place.table, Handle::new(place.context));
    let telling = Telling { bulk, number, piece, stream: Some(stream), table, context, pool };
    place.watcher.add(Box::new(telling), What { to_device: false, way: "peer", bytes: 0 });
    Ok(true)
}

/// The word of a [`Telling`]'s flags that the device writes.
const HAPPENED: usize = 0;

/// An event that a peer is told of.
struct Telling {
    bulk: Bulk,
    number: u64,
    piece: Piece,
    stream: Option<LoneStream>,
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

    fn alive(&self) -> Box<dyn FnOnce() -> bool + Send> {
        alive(&self.pool, self.table, self.context)
    }

    fn give_up(&mut self) {
        self.piece.lose();
        self.stream.take().into_iter().for_each(LoneStream::leave);
    }
}
