//! The lanes and their threads: one that reads and one that writes for each.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use outboard_session::chunks::ChunkError;
use outboard_transport::lane::{read_header, write_frame};
use outboard_transport::{Stream, read_exact};
use outboard_wire::lane::{LaneHeader, LaneKind};
use outboard_wire::limits::MAX_LANES;

use super::table::{Begin, Parked};
use super::{Chunk, Inner, Out, lock};
use crate::meter::{self, Direction, Way};

/// One connection for bulk data.
pub(super) struct Lane {
    stream: Arc<dyn Stream>,
    /// Held by the one thread that writes.
    write: Mutex<()>,
}

/// How long bytes wait on their lane for the command that announces them, before they are parked.
const EARLY: Duration = Duration::from_millis(1);

/// A chunk of up to this size is written by the thread that has it, in bytes.
const SMALL: u32 = 128 << 10;

/// Takes a lane into use.
pub(super) fn start(inner: &Arc<Inner>, stream: Arc<dyn Stream>) -> io::Result<()> {
    let lane = Arc::new(Lane { stream, write: Mutex::new(()) });
    let number = {
        let mut lanes = inner.lanes.write().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= MAX_LANES {
            return Err(io::Error::other(format!("a session has at most {MAX_LANES} lanes")));
        }
        lanes.push(Arc::clone(&lane));
        lanes.len()
    };
    let spawn = |name: &str| std::thread::Builder::new().name(format!("lane-{name}-{number}"));
    let (reader, lane_in) = (Arc::clone(inner), Arc::clone(&lane));
    spawn("in").spawn(move || end_with(reader.read(&lane_in)))?;
    let writer = Arc::clone(inner);
    spawn("out").spawn(move || end_with(writer.write(&lane)))?;
    Ok(())
}

/// A lane that fails ends the session: its copies could never be completed.
fn end_with(result: io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::warn!(%error, "the session ends: a lane carries nonsense");
            super::super::exit(super::super::BROKEN);
        }
        // The client is going; the command connection says so too.
        Err(error) => tracing::debug!(%error, "a lane ends"),
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Inner {
    /// Reads what the client sends on one lane, until it is closed.
    fn read(&self, lane: &Lane) -> io::Result<()> {
        let stream = &*lane.stream;
        loop {
            let mut since = None;
            let header = read_header(stream, || since.get_or_insert_with(Instant::now).elapsed() < self.spin)?;
            if let Some(pace) = &self.pace {
                pace.read(header.len as usize);
            }
            match header.kind {
                LaneKind::Chunk => {}
                LaneKind::Answer => {
                    self.take_answer(stream, &header)?;
                    continue;
                }
                _ => return Err(invalid("only chunks and answers come from a client")),
            }
            meter::page().moved(Direction::In, Way::Lanes, header.len.into());
            self.wait_for_announcement(header.transfer);
            let begin = lock(&self.table).begin(header.transfer, header.index, header.len).map_err(invalid)?;
            match begin {
                Begin::Into(sink) => {
                    let slot = sink.slot(header.index, header.len);
                    // SAFETY: the sink promises that the slot of a granted chunk is valid for writes of its length
                    // and unused until `filled`; the table has checked that the chunk is granted and new.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(slot, header.len as usize) };
                    read_exact(stream, bytes)?;
                    sink.filled(header.index);
                    self.finish(header.transfer);
                }
                Begin::ThrowAway => {
                    throw_away(stream, header.len as usize)?;
                    self.finish(header.transfer);
                }
                Begin::Unknown => self.park(stream, &header)?,
            }
        }
    }

    /// Reads the answer to a request.
    fn take_answer(&self, stream: &dyn Stream, header: &LaneHeader) -> io::Result<()> {
        let request = self.requests.answered(header.transfer, header.len as usize);
        let request = request.ok_or_else(|| invalid("an answer came that nobody asked for, or a longer one"))?;
        let mut body = vec![0; header.len as usize];
        read_exact(stream, &mut body)?;
        request.deliver(header.index, body);
        Ok(())
    }

    /// Gives the command that announces the transfer a moment to be dispatched.
    fn wait_for_announcement(&self, transfer: u64) {
        let deadline = Instant::now() + EARLY;
        let mut table = lock(&self.table);
        while !table.is_announced(transfer) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            table = self.announced.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn finish(&self, transfer: u64) {
        if lock(&self.table).finish(transfer) {
            self.say(LaneHeader { kind: LaneKind::Done, transfer, index: 1, len: 0 });
        }
    }

    fn park(&self, stream: &dyn Stream, header: &LaneHeader) -> io::Result<()> {
        if !lock(&self.table).reserve_parking(header.len as usize) {
            return Err(invalid("more bytes came before their commands than may"));
        }
        let mut bytes = vec![0; header.len as usize];
        read_exact(stream, &mut bytes)?;
        let chunk = Parked { transfer: header.transfer, index: header.index, bytes };
        let announced = lock(&self.table).park(chunk);
        match announced {
            Some(chunk) => self.place_parked(&chunk).map_err(invalid),
            None => Ok(()),
        }
    }

    /// Copies a chunk that was parked to where it belongs.
    pub(super) fn place_parked(&self, chunk: &Parked) -> Result<(), ChunkError> {
        let len = chunk.bytes.len() as u32;
        let begin = lock(&self.table).begin(chunk.transfer, chunk.index, len)?;
        if let Begin::Into(sink) = begin {
            let slot = sink.slot(chunk.index, len);
            // SAFETY: as in `read`: the slot is valid for `len` bytes; parked bytes are elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(chunk.bytes.as_ptr(), slot, chunk.bytes.len()) };
            sink.filled(chunk.index);
        }
        self.finish(chunk.transfer);
        Ok(())
    }

    /// Writes what there is to write, on one lane.
    fn write(&self, lane: &Lane) -> io::Result<()> {
        loop {
            let look = |out: &mut Out| (!out.control.is_empty() || !out.chunks.is_empty()).then_some(());
            drop(self.work.wait(&self.out, self.spin, look));
            let mut writing = lock(&lane.write);
            let mut out = lock(&self.out);
            if let Some(header) = out.control.pop_front() {
                drop(out);
                write_frame(&*lane.stream, &header, &[])?;
            } else if let Some(chunk) = out.chunks.pop_front() {
                drop(out);
                if let Some(pace) = &self.pace {
                    // What has no bytes goes on meanwhile.
                    drop(writing);
                    pace.write(chunk.header.len as usize);
                    writing = lock(&lane.write);
                }
                lane.carry(chunk)?;
            }
            drop(writing);
        }
    }

    /// Writes a small chunk in this thread, on the first lane that is free: waking another thread would take longer.
    /// Hands the chunk back if it is large or all lanes are busy.
    pub(super) fn write_small(&self, chunk: Chunk) -> Option<Chunk> {
        if chunk.header.len > SMALL || self.pace.is_some() {
            return Some(chunk);
        }
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        let Some((lane, _writing)) = lanes.iter().find_map(|lane| Some((lane, lane.try_write()?))) else {
            return Some(chunk);
        };
        // A broken lane is noticed by its reader, and ends the session.
        let _ = lane.carry(chunk);
        None
    }

    /// Sends a frame without bytes: at once if any lane is free, otherwise before the next chunk.
    pub(super) fn say(&self, header: LaneHeader) {
        lock(&self.out).control.push_back(header);
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes.iter() {
            let Some(_writing) = lane.try_write() else { continue };
            loop {
                let Some(header) = lock(&self.out).control.pop_front() else { return };
                // A broken lane is noticed by its reader.
                let _ = write_frame(&*lane.stream, &header, &[]);
            }
        }
        // All are busy: their writers look again when done. Unless one was between two frames just now.
        self.work.ring_one();
    }
}

impl Lane {
    /// The right to write, if nobody has it.
    fn try_write(&self) -> Option<MutexGuard<'_, ()>> {
        match self.write.try_lock() {
            Ok(writing) => Some(writing),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Writes a chunk; the caller has the right to.
    fn carry(&self, chunk: Chunk) -> io::Result<()> {
        // SAFETY: whoever sent the chunk promised that its bytes are valid for reads until `sent` is called.
        let bytes = unsafe { std::slice::from_raw_parts(chunk.from, chunk.header.len as usize) };
        write_frame(&*self.stream, &chunk.header, bytes)?;
        meter::page().moved(Direction::Out, Way::Lanes, chunk.header.len.into());
        (chunk.sent)();
        Ok(())
    }
}

fn throw_away(stream: &dyn Stream, mut len: usize) -> io::Result<()> {
    let mut scratch = vec![0; len.min(64 << 10)];
    while len > 0 {
        let count = len.min(scratch.len());
        read_exact(stream, &mut scratch[..count])?;
        len -= count;
    }
    Ok(())
}
