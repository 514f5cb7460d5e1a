//! Messages between this session and another one, which another client has: bytes that MPI has the
//! two clients exchange, without a client on their way.
//!
//! The sender's worker copies a message out of device memory at once, so that the program's memory
//! is its own again, and keeps the bytes until they are asked for. It needs no driver for them any
//! more: whatever the sending program does next, its peer gets them. The receiver's worker says
//! when it has a place for them, and stores what comes.

mod combining;
mod store;

use std::sync::{Arc, OnceLock, Weak};

use outboard_abi::{CUcontext, CUresult};
use outboard_driver::{Table, call};
use outboard_session::chunks::Cut;
use outboard_wire::DevicePtr;
use outboard_wire::combine::Combine;

use crate::io::{Bulk, Half, Sink};
use store::{Bytes, Room, Store};

/// Bytes of messages that wait for their receivers, at most.
const MOST_OFFERED: usize = 512 << 20;
/// Bytes of messages that are being received at once, unless one alone has more.
const MOST_TAKEN: usize = 256 << 20;
/// Bytes of each chunk.
const CHUNK: u32 = 1 << 20;

/// The memory for a session's messages.
pub(crate) struct Messages {
    offered: Store,
    taken: Store,
}

/// A message at one end.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) link: Bulk,
    pub(crate) number: u64,
    pub(crate) address: DevicePtr,
    pub(crate) cut: Cut,
}

/// The driver, with the context of a message's memory.
#[derive(Clone, Copy)]
pub(crate) struct Driver {
    pub(crate) table: &'static Table,
    pub(crate) context: CUcontext,
}

// SAFETY: a context is made current on any thread.
unsafe impl Send for Driver {}

impl Messages {
    pub(crate) fn new() -> Messages {
        Messages { offered: Store::new(MOST_OFFERED), taken: Store::new(MOST_TAKEN) }
    }

    /// Room for a message that is offered, if there is some.
    pub(crate) fn room(&self, message: &Message) -> Option<Room> {
        self.offered.try_take(message.bytes())
    }

    /// The memory for messages that are taken.
    pub(crate) fn arriving(&self) -> Store {
        self.taken.clone()
    }
}

impl Message {
    /// None if it has no bytes, or too many.
    pub(crate) fn new(
        link: Bulk,
        number: u64,
        (address, bytes): (DevicePtr, u64),
    ) -> Option<Message> {
        usize::try_from(bytes).ok().filter(|bytes| (1..=MOST_OFFERED).contains(bytes))?;
        Some(Message { link, number, address, cut: Cut::new(bytes, CHUNK).ok()? })
    }

    fn bytes(&self) -> usize {
        self.cut.len() as usize
    }

    fn place(&self, offset: usize) -> u64 {
        self.address.0 + offset as u64
    }

    /// Copies it from the device, and keeps it for the peer. Whether there is memory for it.
    /// May wait for the device.
    pub(crate) fn offer(self, driver: Driver, room: Room) -> Result<bool, CUresult> {
        let Some(bytes) = Bytes::new(self.bytes(), room) else { return Ok(false) };
        driver.enter()?;
        let (to, len) = (bytes.at(0), self.bytes());
        call!(driver.table, cuMemcpyDtoH_v2(to.cast(), self.address.0, len))?;
        let (bytes, cell) = (Arc::new(bytes), Arc::new(OnceLock::<Weak<Half>>::new()));
        let (link, number, nudged) = (self.link.clone(), self.number, Arc::clone(&cell));
        let nudge = move || {
            let half = nudged.get().and_then(Weak::upgrade);
            if half.is_some_and(|half| half.is_lost() || half.done().is_some()) {
                link.end(number);
            }
        };
        let half = self.link.begin(number, Arc::new(nudge)).map_err(|_| invalid())?;
        let _ = cell.set(Arc::downgrade(&half));
        for index in 0..self.cut.count() {
            let from = bytes.at(self.cut.offset(index) as usize);
            let (len, kept) = (self.cut.len_of(index), Arc::clone(&bytes));
            // SAFETY: the bytes are there and do not change until the last of these closures is
            // dropped.
            unsafe { self.link.send(number, index, from, len, false, move || drop(kept)) };
        }
        if half.is_lost() {
            self.link.end(number);
        }
        Ok(true)
    }

    /// Has the peer send it, and stores what comes; whether that was all. Waits for it.
    pub(crate) fn take(
        self,
        driver: Driver,
        store: &Store,
        combine: Option<Combine>,
    ) -> Result<bool, CUresult> {
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let sink = store::Arriving::new(store.take(self.bytes()), self.cut).ok_or(out_of_memory)?;
        let sink = Arc::new(sink);
        let nudged = Arc::downgrade(&sink);
        let nudge = move || nudged.upgrade().into_iter().for_each(|sink| sink.look());
        let half = self.link.begin(self.number, Arc::new(nudge)).map_err(|_| invalid())?;
        let outcome = self.receive(driver, &half, &sink, combine);
        self.link.done(self.number, outcome == Ok(true));
        self.link.end(self.number);
        outcome
    }

    fn receive(
        &self,
        driver: Driver,
        half: &Half,
        sink: &Arc<store::Arriving>,
        combine: Option<Combine>,
    ) -> Result<bool, CUresult> {
        driver.enter()?;
        self.link.expect(self.number, self.cut).map_err(|_| invalid())?;
        self.link.set_sink(self.number, Arc::clone(sink) as Arc<dyn Sink>);
        self.link.grant(self.number, self.cut.count());
        let mut stored = 0;
        while stored < self.bytes() {
            let is_over = || half.is_lost() || half.is_cancelled();
            let Some(come) = sink.wait_beyond(stored, is_over) else { return Ok(false) };
            let copied = self.store(driver, sink, stored..come, combine);
            if let Err(error) = copied {
                // What is on its way has a place until it has come.
                self.link.forsake(self.number);
                return Err(error);
            }
            stored = come;
        }
        // Work of every stream is to find it.
        call!(driver.table, cuStreamSynchronize(core::ptr::null_mut()))?;
        Ok(true)
    }

    /// Some bytes have come, which are whole elements.
    fn store(
        &self,
        driver: Driver,
        sink: &store::Arriving,
        range: std::ops::Range<usize>,
        combine: Option<Combine>,
    ) -> Result<(), CUresult> {
        let (from, place, len) = (sink.at(range.start), self.place(range.start), range.len());
        if let Some(combine) = combine {
            let mut there = vec![0; len];
            call!(driver.table, cuMemcpyDtoH_v2(there.as_mut_ptr().cast(), place, len))?;
            // SAFETY: these bytes have come, and nobody writes them again.
            let come = unsafe { std::slice::from_raw_parts_mut(from, len) };
            combining::combine(combine, come, &there);
        }
        call!(driver.table, cuMemcpyHtoD_v2(place, from.cast_const().cast(), len))
    }
}

impl Driver {
    fn enter(self) -> Result<(), CUresult> {
        call!(self.table, cuCtxSetCurrent(self.context))
    }
}

fn invalid() -> CUresult {
    CUresult::CUDA_ERROR_INVALID_VALUE
}
