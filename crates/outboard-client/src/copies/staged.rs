//! Large copies through memory that the server's worker shares, where it does.

use std::collections::VecDeque;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, CopyMode, Result};
use outboard_front::profile;
use outboard_wire::messages as msg;

use super::description::HostCopy;
use super::{chunk_of_rows, pieces};
use crate::link::StagedCopy;
use crate::link::bulk::Direction;
use crate::link::staged::chunk;
use crate::session::Session;

/// Transfers of one copy of which the worker knows, while the bytes of the first are copied.
const AHEAD: usize = 2;

impl Session {
    /// Does a copy through shared memory.
    ///
    /// # Safety
    /// The program's memory is valid until this returns.
    pub(super) unsafe fn copy_staged(&self, ctx: ContextId, copy: &HostCopy) -> Result<()> {
        // SAFETY: by the contract above.
        unsafe { self.copy_pieces(ctx, copy) }.map_err(|error| self.cause(ctx, copy.stream, error))
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
                // SAFETY: by the contract above; what is under way has ended when this returns, see
                // below.
                let staged =
                    unsafe { self.link().stage(direction, copy.place().at(from), bytes, chunk) };
                let staged = staged.ok_or(CUresult::CUDA_ERROR_UNKNOWN)??;
                let (chunk, at, to_device) =
                    (staged.chunk(), staged.at(), direction == Direction::Up);
                let message =
                    msg::CopyStaged { device, extent, to_device, stream, from, bytes, chunk, at };
                self.post_to(ctx, stream, &message)?;
                under_way.push_back(staged);
            }
            // A transfer that no thread runs copies nothing: an error leaves the program's memory
            // alone.
            let Some(staged) = under_way.pop_front() else { return Ok(()) };
            match direction {
                Direction::Up => profile::stalled(|| staged.run()),
                Direction::Down => profile::waited(|| staged.run()),
            }?;
            if copy.mode == CopyMode::Synchronous
                && direction == Direction::Up
                && left.peek().is_none()
            {
                profile::waited(|| staged.taken())?;
            }
        }
    }
}
