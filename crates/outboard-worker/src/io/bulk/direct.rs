//! Chunks that an adapter moves itself, between staging memory and memory that the client lends.
//!
//! A lane carries the frames of such chunks without their bytes. Whatever fails ends the lane's
//! connection: the client takes its memory back before it goes on over another one, and both sides
//! send again with their bytes what has not come.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use outboard_transport::rdma::direct::{Mover, Remote};
use outboard_transport::{Stream, read_exact};
use outboard_wire::lane::{LaneHeader, LaneKind, Lent, Place};

use super::lanes::invalid;
use super::{Bulk, lock};

/// Transfers for whose bytes memory is lent at once. The bytes of older ones come on lanes.
const MOST_LENT: usize = 4096;

/// What moves a session's chunks itself, if something does.
#[derive(Debug, Default)]
pub(in crate::io) struct Direct {
    mover: OnceLock<Mover>,
    /// Memory for transfers towards the client, and how many of its bytes have not gone.
    lent: Mutex<BTreeMap<u64, (Lent, u64)>>,
    /// Whether the log says that it writes, and reads.
    said: [AtomicBool; 2],
    is_refused: AtomicBool,
    is_over: AtomicBool,
}

const WRITES: (usize, &str) =
    (0, "an RDMA adapter writes copies straight into the client's page-locked memory");
const READS: (usize, &str) =
    (1, "an RDMA adapter reads copies straight from the client's page-locked memory");

impl Direct {
    /// The client lends memory to an adapter from here on.
    pub(in crate::io) fn begin(&self, mover: Mover) -> io::Result<()> {
        let twice = |_| invalid("the client lends memory to a second adapter");
        self.mover.set(mover).map_err(twice)
    }

    fn mover(&self) -> Option<&Mover> {
        self.mover.get().filter(|mover| mover.is_connected())
    }

    /// Ends it: a connection of the client's is gone.
    pub(super) fn end(&self) {
        let Some(mover) = self.mover.get() else { return };
        mover.end("a connection of the session is lost");
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let [written, read] = mover.moved();
            tracing::info!(written, read, "the adapter moves no further copies itself");
            lock(&self.lent).clear();
        }
    }

    /// The client lends memory for the bytes of a transfer.
    pub(super) fn lend(&self, transfer: u64, lent: Lent) {
        let mut all = lock(&self.lent);
        if self.mover().is_some() {
            all.insert(transfer, (lent, lent.bytes));
        }
        // Some stay that have gone in part before the client's word came.
        if all.len() > MOST_LENT {
            all.pop_first();
        }
    }

    /// No more bytes of a transfer go.
    pub(super) fn forget(&self, transfer: u64) {
        lock(&self.lent).remove(&transfer);
    }

    /// Has the adapter write a chunk, if the client lends memory for it. Returns when it is there:
    /// whether it is.
    ///
    /// # Safety
    /// The bytes at `from` are valid for reads.
    ///
    /// # Errors
    /// If it may not be, or may come later.
    pub(super) unsafe fn write(&self, header: &LaneHeader, from: *const u8) -> io::Result<bool> {
        let Some(mover) = self.mover().filter(|_| header.kind == LaneKind::Chunk) else {
            return Ok(false);
        };
        let LaneHeader { transfer, index, len, .. } = *header;
        let place = {
            let mut all = lock(&self.lent);
            let Some((lent, left)) = all.get_mut(&transfer) else { return Ok(false) };
            let place = lent.place_of(index, len);
            *left = left.saturating_sub(len.into());
            if *left == 0 {
                all.remove(&transfer);
            }
            place
        };
        let Some(place) = place else { return Ok(false) };
        // SAFETY: by the contract above.
        let written = unsafe { mover.write(from, len as usize, remote(place)) }?;
        if written {
            self.say(WRITES);
        }
        Ok(written)
    }

    fn read(&self, to: &mut [u8], place: Place) -> io::Result<()> {
        let lends = || io::Error::other("the client does not lend its memory any more");
        let mover = self.mover().ok_or_else(lends)?;
        // SAFETY: the bytes are borrowed for as long as this takes.
        unsafe { mover.read(to.as_mut_ptr(), to.len(), remote(place)) }?;
        self.say(READS);
        Ok(())
    }

    fn say(&self, (what, sentence): (usize, &str)) {
        if !self.said[what].swap(true, Ordering::Relaxed) {
            tracing::info!("{sentence}");
        }
    }
}

fn remote(place: Place) -> Remote {
    Remote { address: place.address, rkey: place.key }
}

/// Where the bytes of a chunk are that comes.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Behind its header.
    Stream(&'a dyn Stream),
    /// In memory that the client lends.
    Lent(&'a Direct, Place),
}

impl<'a> Source<'a> {
    /// That of a chunk whose header has just been read.
    pub(super) fn of(
        header: &LaneHeader,
        stream: &'a dyn Stream,
        direct: &'a Direct,
    ) -> io::Result<Source<'a>> {
        if header.kind != LaneKind::Readable {
            return Ok(Source::Stream(stream));
        }
        if direct.mover.get().is_none() {
            return Err(invalid("the client lends memory to no adapter"));
        }
        let mut encoded = [0; Place::SIZE];
        read_exact(stream, &mut encoded)?;
        let place = Place::decode(&encoded, header.len.into()).map_err(invalid)?;
        Ok(Source::Lent(direct, place))
    }

    /// Takes the bytes.
    pub(super) fn fill(self, to: &mut [u8]) -> io::Result<()> {
        match self {
            Source::Stream(stream) => read_exact(stream, to),
            Source::Lent(direct, place) => direct.read(to, place),
        }
    }

    /// Nobody wants them.
    pub(super) fn throw_away(self, mut len: usize) -> io::Result<()> {
        let Source::Stream(stream) = self else { return Ok(()) };
        let mut scratch = vec![0; len.min(64 << 10)];
        while len > 0 {
            let count = len.min(scratch.len());
            read_exact(stream, &mut scratch[..count])?;
            len -= count;
        }
        Ok(())
    }
}

/// What the client lends for a transfer, behind the header that says so.
pub(super) fn read_lent(stream: &dyn Stream) -> io::Result<Lent> {
    let mut encoded = [0; Lent::SIZE];
    read_exact(stream, &mut encoded)?;
    Lent::decode(&encoded).map_err(invalid)
}

/// Staging memory that the adapter knows, while this lives.
pub(crate) struct KnownMemory {
    direct: Arc<Direct>,
    start: *mut u8,
}

// SAFETY: only a name of the memory.
unsafe impl Send for KnownMemory {}
// SAFETY: as above.
unsafe impl Sync for KnownMemory {}

impl Drop for KnownMemory {
    fn drop(&mut self) {
        if let Some(mover) = self.direct.mover.get() {
            mover.remove_memory(self.start);
        }
    }
}

impl Bulk {
    /// Whether there is an adapter that moves chunks itself from and to memory that it knows.
    pub(crate) fn has_mover(&self) -> bool {
        self.inner.direct.mover().is_some()
    }

    /// Has that adapter know staging memory. `None` if it does not take it: then bytes go as
    /// without it.
    ///
    /// # Safety
    /// The memory stays mapped until what this returns has been dropped.
    pub(crate) unsafe fn make_known(&self, start: *mut u8, bytes: usize) -> Option<KnownMemory> {
        let direct = &self.inner.direct;
        // SAFETY: by the contract above.
        match unsafe { direct.mover()?.add_memory(start, bytes) } {
            Ok(()) => Some(KnownMemory { direct: Arc::clone(direct), start }),
            Err(error) => {
                if !direct.is_refused.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "copies go through the RDMA streams of the session");
                }
                None
            }
        }
    }
}
