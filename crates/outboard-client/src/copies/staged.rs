//! Large copies through memory that the server's worker shares, where it does.

use std::collections::VecDeque;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, CopyMode, DevicePtr, Result, StreamId};
use outboard_front::profile;
use outboard_wire::boxes::{Extent, Layout, Region, Storage};
use outboard_wire::messages as msg;

use super::{chunk_of_rows, pieces};
use crate::link::StagedCopy;
use crate::link::bulk::{Direction, Place};
use crate::link::staged::chunk;
use crate::session::Session;

/// A copy between the program's memory and the device.
#[derive(Clone, Copy)]
pub(super) struct HostCopy {
    pub(super) direction: Direction,
    pub(super) device: Region,
    pub(super) extent: Extent,
    pub(super) host: Place,
    pub(super) stream: StreamId,
    pub(super) mode: CopyMode,
}

/// Transfers of one copy of which the worker knows, while the bytes of the first are copied.
const AHEAD: usize = 2;

impl HostCopy {
    /// A copy of bytes in one piece.
    pub(super) fn linear(
        direction: Direction,
        device: DevicePtr,
        host: Place,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> HostCopy {
        let layout = Layout { pitch: bytes, slice: bytes };
        let device = Region { storage: Storage::Linear(device), layout, at: (0, 0, 0) };
        HostCopy { direction, device, extent: Extent::row(bytes), host, stream, mode }
    }
}

impl Session {
    /// Does a copy through shared memory, unless there is none, or nobody waits for the copy.
    ///
    /// # Safety
    /// The program's memory is valid until this returns.
    pub(super) unsafe fn copy_staged(&self, ctx: ContextId, copy: &HostCopy) -> Option<Result<()>> {
        if copy.mode == CopyMode::Pinned || self.link().memory().is_none() {
            return None;
        }
        // SAFETY: by the contract above.
        let copied = unsafe { self.copy_pieces(ctx, copy) };
        Some(copied.map_err(|error| self.cause(ctx, copy.stream, error)))
    }

    /// # Safety
    /// As of [`Session::copy_staged`].
    unsafe fn copy_pieces(&self, ctx: ContextId, copy: &HostCopy) -> Result<()> {
        let HostCopy { direction, device, extent, stream, .. } = *copy;
        let total = extent.bytes().unwrap_or(0);
        let mut under_way: VecDeque<StagedCopy<'_>> = VecDeque::new();
        let mut left = pieces(total, extent.width).peekable();
        loop {
            // To the device, the next transfer can wait: its slots are filled when this one's are.
            let ahead = if direction == Direction::Down { AHEAD } else { 1 };
            while under_way.len() < ahead
                && let Some(piece) = left.next()
            {
                let (from, bytes) = (piece.start, piece.end - piece.start);
                let chunk = chunk_of_rows(chunk(bytes), extent.width);
                // SAFETY: by the contract above; what is under way has ended when this returns, see below.
                let staged = unsafe { self.link().stage(direction, copy.host.at(from), bytes, chunk) };
                let staged = staged.ok_or(CUresult::CUDA_ERROR_UNKNOWN)??;
                let (chunk, at, to_device) = (staged.chunk(), staged.at(), direction == Direction::Up);
                let message = msg::CopyStaged { device, extent, to_device, stream, from, bytes, chunk, at };
                self.post_to(ctx, stream, &message)?;
                under_way.push_back(staged);
            }
            // A transfer that nobody runs copies nothing: an error leaves the program's memory alone.
            let Some(staged) = under_way.pop_front() else { return Ok(()) };
            match direction {
                Direction::Up => profile::stalled(|| staged.run()),
                Direction::Down => profile::waited(|| staged.run()),
            }?;
            if copy.mode == CopyMode::Synchronous && direction == Direction::Up && left.peek().is_none() {
                profile::waited(|| staged.taken())?;
            }
        }
    }
}
