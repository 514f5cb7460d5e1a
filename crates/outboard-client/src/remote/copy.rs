//! Copies of boxes.

use outboard_abi::CUresult;
use outboard_front::backend::{BoxCopies, BoxCopy, ContextId, CopyMode, Memory, Result, Side, Stream};
use outboard_wire::boxes::{Region, Storage};
use outboard_wire::messages as msg;

use super::{Remote, wire};
use crate::boxes::HostBox;

/// A side on the device, as it is named on the wire; or where it is on the host.
fn region(side: &Side) -> std::result::Result<Region, HostBox> {
    let storage = match side.memory {
        Memory::Host(address) => return Err(HostBox { address, layout: side.layout }),
        Memory::Device(address) => Storage::Linear(address),
        Memory::Array(id) => Storage::Array(id.0),
    };
    Ok(Region { storage, layout: side.layout, at: side.at })
}

impl BoxCopies for Remote {
    unsafe fn copy_box(&self, ctx: ContextId, copy: &BoxCopy, stream: Stream, mode: CopyMode) -> Result<()> {
        let (session, stream, extent) = (self.session()?, wire(stream), copy.extent);
        // SAFETY: by the contract of this method.
        unsafe {
            match (region(&copy.dst), region(&copy.src)) {
                (Ok(dst), Ok(src)) => session.post(ctx, &msg::CopyBox { dst, src, extent, stream }),
                (Ok(dst), Err(src)) => session.copy_box_in(ctx, dst, src, extent, stream, mode),
                (Err(dst), Ok(src)) => session.copy_box_out(ctx, dst, src, extent, stream, mode),
                (Err(_), Err(_)) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
    }
}
