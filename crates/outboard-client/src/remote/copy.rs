//! Copies of boxes, and what is made ready for large copies.

use outboard_abi::CUresult;
use outboard_front::backend::{
    BoxCopy, ContextId, CopyMode, HostPtr, Layout, Memory, Result, Side, StreamId,
};
use outboard_wire::boxes::{Region, Storage};
use outboard_wire::messages as msg;

use super::Remote;
use crate::copies::HostCopy;
use crate::link::bulk::Direction;
use crate::pager::Tracked;

/// A side on the device, as it is named on the wire; or where it is on the host.
pub(super) fn region(side: &Side) -> std::result::Result<Region, (HostPtr, Layout)> {
    let storage = match side.memory {
        Memory::Host(address) => return Err((address, side.layout)),
        Memory::Device(address) => Storage::Linear(address),
        Memory::Array(id) => Storage::Array(id),
    };
    Ok(Region { storage, layout: side.layout, at: side.at })
}

impl Remote {
    pub(super) unsafe fn copy_box(
        &'static self,
        ctx: ContextId,
        copy: &BoxCopy,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        let (dst, src) =
            (self.tracked_side(ctx, &copy.dst, copy)?, self.tracked_side(ctx, &copy.src, copy)?);
        if dst.is_none() && src.is_none() {
            // SAFETY: by the contract of this method.
            return unsafe { self.queue_box(ctx, copy, stream, mode) };
        }
        let copy = BoxCopy { dst: dst.unwrap_or(copy.dst), src: src.unwrap_or(copy.src), ..*copy };
        // SAFETY: by the contract of this method.
        self.work(ctx, stream, || unsafe { self.queue_box(ctx, &copy, stream, mode) })?;
        self.after_copy(ctx, stream, mode)
    }
}

/// A program that allocates this many bytes may be about to copy as much to it.
const LEAST_EXPECTED_COPY: u64 = 1 << 20;

impl Remote {
    /// Device memory is about to be allocated: gets the way for large copies ready meanwhile.
    pub(super) fn expect_copies(&self, bytes: u64) -> Result<()> {
        if bytes >= LEAST_EXPECTED_COPY {
            let session = self.session()?;
            if session.link().memory().is_none() {
                session.link().expect_copies();
            }
        }
        Ok(())
    }

    /// # Safety
    /// As of `BoxCopies::copy_box`.
    unsafe fn queue_box(
        &self,
        ctx: ContextId,
        copy: &BoxCopy,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        let (session, extent) = (self.session()?, copy.extent);
        let (direction, device, (host, layout)) = match (region(&copy.dst), region(&copy.src)) {
            (Ok(dst), Ok(src)) => {
                return session.post_to(ctx, stream, &msg::CopyBox { dst, src, extent, stream });
            }
            (Ok(dst), Err(src)) => (Direction::Up, dst, src),
            (Err(dst), Ok(src)) => (Direction::Down, src, dst),
            (Err(_), Err(_)) => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: by the contract of this method.
        unsafe {
            session.copy(ctx, &HostCopy { direction, device, extent, host, layout, stream, mode })
        }
    }

    /// A side in memory that the program and the device both use, as the device knows it.
    fn tracked_side(
        &'static self,
        ctx: ContextId,
        side: &Side,
        copy: &BoxCopy,
    ) -> Result<Option<Side>> {
        let address = match side.memory {
            Memory::Host(address) => address.unified(),
            Memory::Device(address) => address.unified(),
            Memory::Array(_) => return Ok(None),
        };
        let span = side.layout.span(copy.extent).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let Some(pinned) = self.pinned_side(side, span) {
            return Ok(Some(pinned));
        }
        let tracked = match side.memory {
            Memory::Host(address) => self.tracked_on_host(ctx, address, span)?,
            _ => self.tracked(address, span),
        };
        match tracked {
            Tracked::None => Ok(None),
            // Page-locked memory of which the device has only a part.
            Tracked::Some if matches!(side.memory, Memory::Host(_)) => {
                Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
            }
            Tracked::Some | Tracked::All => {
                Ok(Some(Side { memory: Memory::Device(address.device()), ..*side }))
            }
        }
    }
}
