//! Copies between the program's memory and the device: described once ([`description`]), planned in
//! one place ([`plan`]), and done by one of the ways that their bytes may take ([`inline`],
//! [`staged`], [`background`], and lanes [`up`] and [`down`]).

pub(crate) mod hold;
pub(crate) mod late;
pub(crate) mod under_way;

mod background;
mod description;
mod down;
mod inline;
mod plan;
mod staged;
mod up;

pub(crate) use description::HostCopy;

use std::ops::Range;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, CopyMode, HostPtr, Result, StreamId};
use outboard_front::profile;
use outboard_wire::messages as msg;
use plan::{Facts, Way, plan};

use crate::link::bulk::Direction;
use crate::session::Session;

impl Session {
    /// Does a copy between the program's memory and the device, or queues it.
    ///
    /// # Safety
    /// The program's memory is readable or writable, in the rows of the copy, for as long as
    /// `copy.mode` says.
    pub(crate) unsafe fn copy(&self, ctx: ContextId, copy: &HostCopy) -> Result<()> {
        let sizes = copy.sizes()?;
        let to_device = copy.direction == Direction::Up;
        let host = copy.host.range(sizes.span);
        let facts = Facts {
            direction: copy.direction,
            bytes: sizes.bytes,
            mode: copy.mode,
            shares_memory: self.link().memory().is_some(),
            is_written_before: to_device && self.source_is_written_before(&host, copy.mode),
        };
        let way = plan(&facts);
        if to_device && way != Way::Late {
            self.settle_source(ctx, copy, &host)?;
        }
        if !to_device && copy.mode != CopyMode::Pinned && self.copies.is_download_under_way(&host) {
            // Bytes of an earlier copy must not come later than these.
            self.wait(ctx, &msg::StreamSynchronize { stream: copy.stream })?;
        }
        // SAFETY: by the contract above.
        unsafe {
            match way {
                Way::Inline if to_device => self.copy_in_inline(ctx, copy, sizes),
                Way::Inline => self.copy_out_inline(ctx, copy, sizes),
                Way::Staged => self.copy_staged(ctx, copy),
                Way::Background | Way::Lanes if to_device => {
                    self.copy_up(ctx, copy, sizes, (way == Way::Background, false))
                }
                Way::Background | Way::Lanes => {
                    self.copy_down(ctx, copy, sizes, way == Way::Background)
                }
                Way::Late => self.copy_up(ctx, copy, sizes, (false, true)),
            }
        }
    }

    /// Why a copy has failed whose bytes did not come or go: its own failure, or a fault, of which
    /// the worker has told, or will before the stream's end. Without such an error, it is the
    /// outcome of the bytes' transfer.
    #[cold]
    fn cause(&self, ctx: ContextId, stream: StreamId, error: CUresult) -> CUresult {
        self.wait(ctx, &msg::StreamSynchronize { stream }).err().unwrap_or(error)
    }

    /// Waits until no copy reads or writes these bytes of page-locked memory.
    pub(crate) fn finish_copies(&self, memory: *const u8, bytes: usize) {
        // Posted commands must be sent for their copies to end.
        profile::stalled(|| {
            let _ = self.link().flush();
            self.copies.wait_for_all(&range(memory, bytes as u64));
        });
    }

    /// The program gives page-locked memory up: waits until no copy uses it, and lets no launch ask
    /// for it any more.
    pub(crate) fn memory_goes(&self, memory: *const u8, bytes: usize) {
        self.finish_copies(memory, bytes);
        self.link().lend_no_more(memory.cast_mut());
        self.graphs().gone(&range(memory, bytes as u64));
    }

    /// Whether bytes of copies may be on their way for which only an answer says that a wait must
    /// include them.
    pub(crate) fn has_copies_to_be_told_of(&self) -> bool {
        self.copies.are_to_be_told_of()
    }
}

/// The addresses of some bytes.
pub(crate) fn range(memory: *const u8, bytes: u64) -> Range<HostPtr> {
    HostPtr::of(memory).range(bytes)
}

/// Larger copies go as several transfers: each queues a few operations in the stream for each of
/// its chunks, and a stream holds only so many.
const LARGEST_TRANSFER: u64 = 128 << 20;

/// A chunk size for a box: whole rows if they fit, so that each chunk is one copy on the device.
fn chunk_of_rows(suggested: u32, width: u64) -> u32 {
    let rows = u64::from(suggested) / width;
    let fitting = rows * width;
    // Chunks of rows that are nearly as large as a chunk must not be much smaller than what was
    // suggested.
    if rows > 0 && fitting >= 64 << 10 { fitting as u32 } else { suggested }
}

/// The transfers that a copy is made of: of whole rows, if they are not larger than a transfer.
fn pieces(bytes: u64, row: u64) -> impl Iterator<Item = Range<u64>> {
    let largest = if row < LARGEST_TRANSFER {
        LARGEST_TRANSFER - LARGEST_TRANSFER % row
    } else {
        LARGEST_TRANSFER
    };
    (0..bytes.div_ceil(largest))
        .map(move |index| index * largest..((index + 1) * largest).min(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::bulk::suggested_chunk;
    use outboard_session::chunks::Cut;
    use proptest::prelude::*;

    proptest! {
        /// Whatever its rows, a box can be cut, and chunks of whole rows are not tiny.
        #[test]
        fn every_box_can_be_cut(bytes in 65_537u64..(128 << 20), width in 1u64..(64 << 20)) {
            let suggested = suggested_chunk(bytes);
            let chunk = chunk_of_rows(suggested, width);
            prop_assert!(Cut::new(bytes, chunk).is_ok());
            prop_assert!(u64::from(chunk).is_multiple_of(width) || chunk == suggested);
        }
    }
}
