//! The bytes of a copy between two servers, which go through this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use outboard_abi::CUresult;
use outboard_wire::boxes::Part;
use parking_lot::Mutex;

use super::{Member, OwnStream, Way};
use crate::backend::{
    BoxCopy, ContextId, CopyMode, Extent, HostPtr, Layout, Memory, Result, Side, StreamId,
};

/// Bytes that are fetched from the one server before they are sent to the other. A multiple of all
/// sizes of elements.
const PIECE: u64 = 4 << 20;
/// Pieces of one copy that are here at once.
const PIECES: usize = 3;
/// Buffers for pieces that are kept for other copies.
const KEPT: usize = 2 * PIECES;

/// What a process needs for such copies.
pub(super) struct Relay {
    buffers: Mutex<Vec<Vec<u8>>>,
    /// Bytes that have come from one server for another.
    relayed: AtomicU64,
}

/// A side of a copy on the device, with what copies it.
pub(super) struct End<S: 'static> {
    pub(super) server: &'static S,
    pub(super) ctx: ContextId,
    pub(super) side: Side,
}

impl<S> Clone for End<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for End<S> {}

impl Relay {
    pub(super) const fn new() -> Relay {
        Relay { buffers: Mutex::new(Vec::new()), relayed: AtomicU64::new(0) }
    }

    /// Bytes that have gone from server to server through this process.
    pub(super) fn relayed(&self) -> u64 {
        self.relayed.load(Ordering::Relaxed)
    }

    /// Copies a box from one server to the other. Returns when its bytes are there.
    pub(super) fn copy<S: Member>(
        &'static self,
        dst: End<S>,
        src: End<S>,
        extent: Extent,
    ) -> Result<()> {
        let bytes = extent.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if bytes <= PIECE {
            let mut buffer = self.buffer();
            let outcome = src
                .fetch(extent, (0, bytes), &mut buffer)
                .and_then(|()| dst.store(extent, (0, bytes), &mut buffer));
            self.keep(buffer);
            self.relayed.fetch_add(bytes, Ordering::Relaxed);
            return outcome.and_then(|()| dst.settle());
        }
        let (full, fulls) = channel::<((u64, u64), Vec<u8>)>();
        let (empty, empties) = channel();
        for _ in 0..PIECES {
            let _ = empty.send(self.buffer());
        }
        let (said, outcome) = channel();
        let store = move || {
            let _ = said.send(store_all(dst, extent, &fulls, &empty));
        };
        outboard_threads::start("outboard-across", store)
            .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let fetched = self.fetch_all(src, (extent, bytes), &full, &empties);
        drop(full);
        let stored = outcome.recv().unwrap_or(Err(CUresult::CUDA_ERROR_UNKNOWN));
        empties.into_iter().for_each(|buffer| self.keep(buffer));
        fetched.and(stored)
    }

    fn fetch_all<S: Member>(
        &self,
        src: End<S>,
        (extent, bytes): (Extent, u64),
        full: &Sender<((u64, u64), Vec<u8>)>,
        empties: &Receiver<Vec<u8>>,
    ) -> Result<()> {
        for from in (0..bytes).step_by(PIECE as usize) {
            let range = (from, (from + PIECE).min(bytes));
            // Without an empty one the other server has failed, and says why.
            let Ok(mut buffer) = empties.recv() else { return Ok(()) };
            if let Err(error) = src.fetch(extent, range, &mut buffer) {
                self.keep(buffer);
                return Err(error);
            }
            self.relayed.fetch_add(range.1 - range.0, Ordering::Relaxed);
            if full.send((range, buffer)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn buffer(&self) -> Vec<u8> {
        self.buffers.lock().pop().unwrap_or_else(|| vec![0; PIECE as usize])
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < KEPT {
            buffers.push(buffer);
        }
    }
}

/// Stores pieces until there are no more.
fn store_all<S: Member>(
    dst: End<S>,
    extent: Extent,
    fulls: &Receiver<((u64, u64), Vec<u8>)>,
    empty: &Sender<Vec<u8>>,
) -> Result<()> {
    for (range, mut buffer) in fulls {
        dst.store(extent, range, &mut buffer)?;
        let _ = empty.send(buffer);
    }
    dst.settle()
}

impl<S: Member> End<S> {
    fn stream(&self, way: Way) -> Result<StreamId> {
        self.server.own_stream(self.ctx, OwnStream::Copies(way))
    }

    /// Copies a range of the packed bytes to a buffer.
    fn fetch(&self, extent: Extent, range: (u64, u64), buffer: &mut [u8]) -> Result<()> {
        self.copy(Way::FromDevice, extent, range, buffer)
    }

    /// Copies a buffer to a range of the packed bytes.
    fn store(&self, extent: Extent, range: (u64, u64), buffer: &mut [u8]) -> Result<()> {
        self.copy(Way::ToDevice, extent, range, buffer)
    }

    fn copy(&self, way: Way, extent: Extent, range: (u64, u64), buffer: &mut [u8]) -> Result<()> {
        let mut rest = buffer;
        for part in extent.parts(range.0..range.1) {
            let bytes = part.extent.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
            let (piece, behind) = rest.split_at_mut_checked(bytes as usize).ok_or(invalid)?;
            rest = behind;
            let host = Side {
                memory: Memory::Host(HostPtr::of(piece.as_mut_ptr())),
                layout: Layout::packed(part.extent),
                at: (0, 0, 0),
            };
            // SAFETY: the piece is this thread's, and has as many bytes as the part; the copy is
            // synchronous.
            unsafe { self.copy_with(way, &part, host) }?;
        }
        Ok(())
    }

    /// Copies a part of this side from or to host memory, in a stream of the server's own.
    ///
    /// # Safety
    /// The host memory is readable or writable for the part's bytes in its layout.
    unsafe fn copy_with(&self, way: Way, part: &Part, host: Side) -> Result<()> {
        let device = self.side.part(part).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (dst, src) = match way {
            Way::ToDevice => (device, host),
            Way::FromDevice => (host, device),
        };
        let copy = BoxCopy { dst, src, extent: part.extent };
        // SAFETY: by the contract above.
        unsafe { self.server.copy_box(self.ctx, &copy, self.stream(way)?, CopyMode::Synchronous) }
    }

    /// Copies all of another side of the same server to this one. Returns when the bytes are there.
    pub(super) fn copy_from(&self, src: &End<S>, extent: Extent) -> Result<()> {
        let copy = BoxCopy { dst: self.side, src: src.side, extent };
        let stream = self.stream(Way::ToDevice)?;
        // SAFETY: no side is host memory.
        unsafe { self.server.copy_box(self.ctx, &copy, stream, CopyMode::Synchronous) }?;
        self.settle()
    }

    /// Copies all of this side from or to host memory. Returns when the bytes are there.
    ///
    /// # Safety
    /// The host memory is readable or writable for the box's bytes in its layout.
    pub(super) unsafe fn copy_whole(&self, way: Way, extent: Extent, host: Side) -> Result<()> {
        // SAFETY: by the contract above.
        unsafe { self.copy_with(way, &Part { at: (0, 0, 0), extent, packed: 0 }, host) }?;
        if way == Way::ToDevice { self.settle() } else { Ok(()) }
    }

    /// Waits until what was stored is there: small copies to the device return earlier.
    fn settle(&self) -> Result<()> {
        self.server.stream_synchronize(self.ctx, self.stream(Way::ToDevice)?)
    }
}
