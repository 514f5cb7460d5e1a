//! The lanes and their threads: one that reads and one that writes for each.
//!
//! A lane outlives its connection if the client can resume it over another one: sent frames are
//! kept until the client has them, and sent again first. A chunk that was received in part is
//! received once more, to the same place.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outboard_session::chunks::ChunkError;
use outboard_transport::lane::read_numbered;
use outboard_transport::{Stream, read_exact, write_all};
use outboard_wire::handshake::resume::Point;
use outboard_wire::lane::{LaneHeader, LaneKind};
use outboard_wire::limits::MAX_LANES;

use super::direct::{Source, read_lent};
use super::lane::{Frame, Lane, Writing};
use super::peer::Peer;
use super::table::{Begin, Came, Parked};
use super::{Chunk, Inner, Out, lock};
use outboard_control::meter::{self, Direction, Way};

/// How long bytes wait on their lane for the command that announces them, before they are parked.
const EARLY: Duration = Duration::from_millis(1);

/// A chunk of up to this size is written by the thread that has it, in bytes.
const SMALL: u32 = 128 << 10;

/// Takes a lane into use that ends with its connection.
pub(super) fn start(inner: &Arc<Inner>, stream: Arc<dyn Stream>) -> io::Result<()> {
    start_threads(inner, Lane::new(stream, None))
}

/// Takes a lane into use, or resumes one over another connection. `welcome` gets the number of
/// received frames, and returns the answer to the client.
pub(super) fn resume(
    inner: &Arc<Inner>,
    stream: Arc<dyn Stream>,
    point: Point,
    welcome: impl FnOnce(u64) -> Vec<u8>,
) -> io::Result<()> {
    let known = inner.lanes().iter().find(|lane| lane.number == Some(point.lane)).map(Arc::clone);
    let Some(lane) = known else {
        if point.lane as usize >= MAX_LANES || point.received > 0 {
            return Err(invalid("the client goes on with a lane that there never was"));
        }
        // It fits into the empty socket buffer, so this does not wait for the client.
        write_all(&*stream, &welcome(0))?;
        return start_threads(inner, Lane::new(stream, Some(point)));
    };
    // The client has taken its memory back. A reader that waits for the adapter waits no longer.
    inner.direct.end();
    if !lane.stop(point.attempt)? {
        return Ok(());
    }
    let gone = lane.go_on(stream, point.received, welcome)?;
    for frame in gone {
        frame.has_come();
    }
    drop(lock(&inner.out));
    inner.work.ring_all();
    Ok(())
}

fn start_threads(inner: &Arc<Inner>, lane: Lane) -> io::Result<()> {
    let lane = Arc::new(lane);
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
    spawn("in").spawn(move || {
        loop {
            let (stream, epoch) = lane_in.current();
            let result = reader.read(&lane_in, &*stream);
            reader.has_ended(result);
            // Another lane now has the work that this lane's writer was woken for.
            lane_in.down(&*stream);
            reader.wake_writers();
            drop(stream);
            if !lane_in.wait_for_another(epoch) {
                return;
            }
        }
    })?;
    let writer = Arc::clone(inner);
    spawn("out").spawn(move || writer.has_ended(writer.write(&lane)))?;
    Ok(())
}

/// What a lane's end means.
fn end_with(result: io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::warn!(%error, "the session ends: a lane carries nonsense");
            super::super::exit::exit(super::super::exit::BROKEN);
        }
        // The client is going, and the command connection says so too; or it comes back.
        Err(error) => tracing::debug!(%error, "a lane's connection ends"),
    }
}

pub(super) fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Inner {
    /// A lane's thread has ended.
    pub(super) fn has_ended(&self, result: io::Result<()>) {
        match (&self.peer, result) {
            (None, result) => end_with(result),
            (Some(_), Ok(())) => {}
            (Some(peer), Err(error)) => {
                if !peer.is_lost() {
                    tracing::warn!(%error, "a link to another server's worker is lost");
                }
                self.lose_peer();
            }
        }
    }

    /// The link to a peer is lost, with all lanes.
    pub(super) fn lose_peer(&self) {
        let Some(peer) = &self.peer else { return };
        peer.lose();
        for lane in self.lanes().iter() {
            lane.end();
        }
        let left = std::mem::take(&mut *lock(&self.out));
        drop(left);
        self.wake_writers();
    }

    /// Reads what the other side sends on one lane, until its connection ends.
    pub(super) fn read(&self, lane: &Lane, stream: &dyn Stream) -> io::Result<()> {
        let mut heard = None;
        loop {
            let mut since = None;
            let look = || since.get_or_insert_with(Instant::now).elapsed() < self.spin;
            let (header, received) = read_numbered(stream, None, look)?;
            if lane.number.is_some() && heard.replace(received) != Some(received) {
                lane.acknowledged(received)?;
            }
            if let Some(pace) = &self.pace {
                pace.read(header.len as usize);
            }
            let placed = match header.kind {
                LaneKind::Chunk => self.take_chunk(Source::Stream(stream), &header)?,
                LaneKind::Readable if self.peer.is_none() && lane.number.is_some() => {
                    self.take_chunk(Source::of(&header, stream, &self.direct)?, &header)?
                }
                LaneKind::Lend if self.peer.is_none() && lane.number.is_some() => {
                    self.direct.lend(header.transfer, read_lent(stream)?);
                    false
                }
                LaneKind::Answer if self.peer.is_none() => self.take_answer(stream, &header)?,
                LaneKind::Acknowledge if lane.number.is_some() => continue,
                _ if self.peer.is_some() => {
                    self.hear(&header)?;
                    continue;
                }
                _ => return Err(invalid("only chunks and answers come from a client")),
            };
            meter::page().moved(Direction::In, Way::Lanes, header.len.into());
            lane.has_received(header.len);
            if placed {
                self.finish(header.transfer);
            }
            lane.settle(|| self.wake_writers());
        }
    }

    /// A peer says something.
    fn hear(&self, header: &LaneHeader) -> io::Result<()> {
        let Some(peer) = &self.peer else { return Ok(()) };
        let free = peer.hear(header)?;
        if !free.is_empty() {
            lock(&self.out).chunks.extend(free);
            self.wake_writers();
        }
        Ok(())
    }

    /// Reads a chunk to where it belongs; whether that is known. If it does not come whole, it is
    /// as if it had not begun to come.
    fn take_chunk(&self, source: Source<'_>, header: &LaneHeader) -> io::Result<bool> {
        if self.peer.is_none() {
            self.wait_for_announcement(header.transfer);
        }
        let begin =
            lock(&self.table).begin(header.transfer, header.index, header.len).map_err(invalid)?;
        let come = match begin {
            Begin::Into(sink) => {
                // SAFETY: the table has checked that the chunk is granted and new.
                unsafe { source.fill_slot(&*sink, header) }
            }
            Begin::ThrowAway => source.throw_away(header.len as usize),
            Begin::Unknown if self.peer.is_some() => {
                return Err(invalid("a peer sends a chunk of what nobody has announced"));
            }
            Begin::Unknown => return self.park(source, header),
        };
        if come.is_err() {
            lock(&self.table).broke_off(header.transfer, header.index);
        }
        come.map(|()| true)
    }

    /// Reads the answer to a request. No chunk has come with it.
    fn take_answer(&self, stream: &dyn Stream, header: &LaneHeader) -> io::Result<bool> {
        let nobody = || invalid("an answer came that nobody asked for, or a longer one");
        let len = header.len as usize;
        if !self.requests.expects(header.transfer, len) {
            return Err(nobody());
        }
        let mut body = vec![0; len];
        read_exact(stream, &mut body)?;
        self.requests
            .answered(header.transfer, len)
            .ok_or_else(nobody)?
            .deliver(header.index, body);
        Ok(false)
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
            table = self.announced.wait_timeout(table, left).0;
        }
    }

    fn finish(&self, transfer: u64) {
        let came = lock(&self.table).finish(transfer);
        match came {
            Came::Some => return,
            Came::AllThrownAway => {
                self.say(LaneHeader { kind: LaneKind::Done, transfer, index: 1, len: 0 })
            }
            Came::All => {}
        }
        // The client may wait until it need not keep the bytes any longer.
        for lane in self.lanes().iter() {
            lane.owe();
            lane.settle(|| self.wake_writers());
        }
    }

    /// Reads a chunk that is early. Whether it is not early any more, and where it belongs.
    fn park(&self, source: Source<'_>, header: &LaneHeader) -> io::Result<bool> {
        if !lock(&self.table).reserve_parking(header.len as usize) {
            return Err(invalid("more bytes came before their commands than may"));
        }
        let mut bytes = vec![0; header.len as usize];
        if let Err(error) = source.fill(&mut bytes) {
            lock(&self.table).unreserve_parking(header.len as usize);
            return Err(error);
        }
        let chunk = Parked { transfer: header.transfer, index: header.index, bytes };
        let announced = lock(&self.table).park(chunk);
        match announced {
            Some(chunk) => self.put_parked(&chunk).map(|()| true).map_err(invalid),
            None => Ok(false),
        }
    }

    /// Copies a chunk that was parked to where it belongs.
    pub(super) fn place_parked(&self, chunk: &Parked) -> Result<(), ChunkError> {
        self.put_parked(chunk)?;
        self.finish(chunk.transfer);
        Ok(())
    }

    fn put_parked(&self, chunk: &Parked) -> Result<(), ChunkError> {
        let len = chunk.bytes.len() as u32;
        let begin = lock(&self.table).begin(chunk.transfer, chunk.index, len)?;
        if let Begin::Into(sink) = begin {
            let slot = sink.slot(chunk.index, len);
            match sink.device() {
                Some(device) => device.write(slot as u64, &chunk.bytes),
                // SAFETY: the sink promises that the slot of a granted chunk is valid for `len`
                // bytes; parked bytes are elsewhere.
                None => unsafe {
                    slot.copy_from_nonoverlapping(chunk.bytes.as_ptr(), len as usize)
                },
            }
            sink.filled(chunk.index);
        }
        Ok(())
    }

    /// Writes queued chunks on one lane.
    fn write(&self, lane: &Lane) -> io::Result<()> {
        loop {
            let look = |out: &mut Out| {
                let any = !out.control.is_empty() || !out.chunks.is_empty();
                let over = self.peer.as_ref().is_some_and(Peer::is_lost);
                (over || lane.needs_its_writer() || any && lane.is_up()).then_some(over)
            };
            let (out, over) = self.work.wait(&self.out, self.spin, look);
            drop(out);
            if over {
                return Ok(());
            }
            let mut writing = lock(&lane.write);
            if lane.needs_its_writer() {
                lane.catch_up(&mut writing);
            } else if lane.is_up() {
                let mut out = lock(&self.out);
                let next = out.control.pop_front().map(Frame::control);
                let next = next.or_else(|| out.chunks.pop_front().map(Frame::from));
                drop(out);
                if let Some(frame) = next {
                    if let Some(pace) = self.pace.as_ref().filter(|_| frame.bytes_long() > 0) {
                        // Work without bytes continues meanwhile.
                        drop(writing);
                        pace.write(frame.bytes_long());
                        writing = lock(&lane.write);
                    }
                    lane.put(&mut writing, frame, &self.direct)?;
                }
            }
            drop(writing);
            lane.settle(|| self.wake_writers());
        }
    }

    /// Wakes the threads that wait for something to write.
    fn wake_writers(&self) {
        drop(lock(&self.out));
        self.work.ring_all();
    }

    /// Something has been added to what is to be written.
    pub(super) fn tell_a_writer(&self) {
        // The one that is told may have no connection.
        if self.lanes().iter().all(|lane| lane.is_up()) {
            self.work.ring_one()
        } else {
            self.work.ring_all()
        }
    }

    /// Writes a small chunk in this thread, on the first lane that is free: waking another thread
    /// would take longer. Hands the chunk back if it is large or all lanes are busy.
    pub(super) fn write_small(&self, chunk: Chunk) -> Option<Chunk> {
        if chunk.header.len > SMALL || self.pace.is_some() {
            return Some(chunk);
        }
        let lanes = self.lanes();
        let Some((lane, mut writing)) =
            lanes.iter().find_map(|lane| Some((lane, lane.try_write()?)))
        else {
            return Some(chunk);
        };
        self.put(lane, &mut writing, chunk.into());
        drop(writing);
        lane.settle(|| self.wake_writers());
        None
    }

    fn put(&self, lane: &Lane, writing: &mut MutexGuard<'_, Writing>, frame: Frame) {
        // A broken lane is noticed by its reader, which ends the session unless it can be replaced.
        let _ = lane.put(writing, frame, &self.direct);
    }

    /// Sends a frame without bytes: at once if any lane is free, otherwise before the next chunk.
    pub(super) fn say(&self, header: LaneHeader) {
        lock(&self.out).control.push_back(header);
        let lanes = self.lanes();
        for lane in lanes.iter() {
            let Some(mut writing) = lane.try_write() else { continue };
            loop {
                let Some(header) = lock(&self.out).control.pop_front() else {
                    drop(writing);
                    lane.settle(|| self.wake_writers());
                    return;
                };
                self.put(lane, &mut writing, Frame::control(header));
            }
        }
        drop(lanes);
        // All are busy: their writers look again when done. Unless one was between two frames just
        // now.
        self.tell_a_writer();
    }
}
