//! Batches: transfers that are queued together, and asked about later.

mod threads;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::parameters::{self, BATCH};
use crate::status::{Failure, INVALID, Result, code, require};
use crate::table::Way;
use crate::transfer::Transfer;
use crate::types::{Event, Handle, Request};
use crate::{files, statistics};

/// `CUFILE_BATCH`.
const MODE: u32 = 1;
/// `CUFILE_READ` and `CUFILE_WRITE`.
const READ: u32 = 0;
const WRITE: u32 = 1;

/// Values of `CUfileStatus_t`.
const CANCELED: u32 = 0x08;
const COMPLETE: u32 = 0x10;
const FAILED: u32 = 0x40;

struct Batch {
    /// So many transfers may be queued or not asked about yet.
    room: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Operation>,
    running: usize,
    ended: VecDeque<Ended>,
}

/// A transfer, and what the program knows it by.
struct Operation {
    transfer: Transfer,
    cookie: usize,
}

struct Ended {
    cookie: usize,
    status: u32,
    result: isize,
}

impl State {
    fn under_way(&self) -> usize {
        self.waiting.len() + self.running
    }
}

struct Batches {
    last: usize,
    all: BTreeMap<usize, Arc<Batch>>,
}

static BATCHES: Mutex<Batches> = Mutex::new(Batches { last: 0, all: BTreeMap::new() });

/// Handles are multiples of this, as addresses would be.
const STEP: usize = 16;

/// Makes a batch for so many transfers.
pub(crate) fn set_up(room: u32) -> Result<Handle> {
    let room = room as usize;
    require((1..=parameters::number(BATCH)).contains(&room))?;
    let batch = Batch { room, state: Mutex::default(), changed: Condvar::new() };
    let mut batches = BATCHES.lock();
    batches.last += STEP;
    let handle = batches.last;
    batches.all.insert(handle, Arc::new(batch));
    Ok(handle as Handle)
}

fn look(handle: Handle) -> Result<Arc<Batch>> {
    BATCHES.lock().all.get(&(handle as usize)).cloned().ok_or(INVALID)
}

fn operation(request: &Request) -> Result<Operation> {
    require(request.mode == MODE && !request.base.is_null())?;
    require(request.file_offset >= 0 && request.base_offset >= 0)?;
    let way = match request.operation {
        READ => Way::Read,
        WRITE => Way::Write,
        _ => return Err(INVALID),
    };
    let transfer = Transfer {
        way,
        file: files::look(request.file)?,
        base: request.base as u64,
        base_offset: request.base_offset,
        bytes: request.bytes,
        file_offset: request.file_offset,
    };
    Ok(Operation { transfer, cookie: request.cookie as usize })
}

/// Queues transfers: all of them, or none if one is not well described or there is no room.
pub(crate) fn submit(handle: Handle, requests: &[Request]) -> Result<()> {
    let batch = look(handle)?;
    require(!requests.is_empty())?;
    let operations = requests.iter().map(operation).collect::<Result<Vec<_>>>()?;
    let threads = threads::way().ok_or(Failure::Code(code::BATCH_SUBMIT_FAILED))?;
    {
        let mut state = batch.state.lock();
        if state.under_way() + state.ended.len() + operations.len() > batch.room {
            return Err(Failure::Code(code::BATCH_FULL));
        }
        state.waiting.extend(operations);
    }
    for _ in requests {
        // The threads never end.
        let _ = threads.send(Arc::clone(&batch));
    }
    Ok(())
}

impl Batch {
    /// Makes the next transfer, if one waits.
    fn make_next(&self) {
        let operation = {
            let mut state = self.state.lock();
            let Some(operation) = state.waiting.pop_front() else { return };
            state.running += 1;
            operation
        };
        // SAFETY: the program leaves the memory to the batch until it is told of the end.
        let make = || unsafe { operation.transfer.make() };
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make));
        let made = made.unwrap_or(Err(Failure::Code(code::INTERNAL_ERROR)));
        statistics::batch_processed(operation.transfer.way, made);
        let (status, result) = match made {
            Ok(moved) => (COMPLETE, moved as isize),
            Err(failure) => (FAILED, failure.result()),
        };
        let mut state = self.state.lock();
        state.running -= 1;
        state.ended.push_back(Ended { cookie: operation.cookie, status, result });
        self.changed.notify_all();
    }

    fn cancel(&self) {
        let mut state = self.state.lock();
        while let Some(Operation { cookie, .. }) = state.waiting.pop_front() {
            state.ended.push_back(Ended { cookie, status: CANCELED, result: 0 });
        }
        self.changed.notify_all();
    }
}

/// What has ended, at most so many, once at least `least` have or `timeout` is over. Each is told
/// once.
pub(crate) fn ended(
    handle: Handle,
    (least, most): (usize, usize),
    timeout: Option<Duration>,
) -> Result<Vec<Event>> {
    let batch = look(handle)?;
    require(least <= most)?;
    // One that is too long to be said has no end.
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut state = batch.state.lock();
    // No more than there are will ever end.
    while state.ended.len() < least && state.under_way() > 0 {
        match until {
            None => batch.changed.wait(&mut state),
            Some(until) => {
                if batch.changed.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
        }
    }
    let told = state.ended.len().min(most);
    let event = |Ended { cookie, status, result }| Event { cookie: cookie as _, status, result };
    Ok(state.ended.drain(..told).map(event).collect())
}

/// Ends what has not begun.
pub(crate) fn cancel(handle: Handle) -> Result<()> {
    look(handle)?.cancel();
    Ok(())
}

/// Ends a batch: what has begun has ended when this returns. Whether there was one.
pub(crate) fn destroy(handle: Handle) -> bool {
    let Some(batch) = BATCHES.lock().all.remove(&(handle as usize)) else { return false };
    batch.cancel();
    let mut state = batch.state.lock();
    while state.running > 0 {
        batch.changed.wait(&mut state);
    }
    true
}
