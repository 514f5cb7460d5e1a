//! Small copies: their bytes travel in the command, or in its answer.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_wire::Reader;
use outboard_wire::messages as msg;

use super::description::{HostCopy, Sizes};
use crate::session::Session;

impl Session {
    /// Sends the bytes along with the command.
    ///
    /// # Safety
    /// The program's memory is readable, in the rows of the copy.
    pub(super) unsafe fn copy_in_inline(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        sizes: Sizes,
    ) -> Result<()> {
        let (stream, extent) = (copy.stream, copy.extent);
        let mut scratch = Vec::new();
        // SAFETY: by the contract above.
        let data = unsafe { copy.place().read(sizes.bytes as usize, &mut scratch) };
        match copy.device_row() {
            Some(dst) => self.post_to(ctx, stream, &msg::CopyIn { dst, stream, data }),
            None => self.post_to(
                ctx,
                stream,
                &msg::CopyBoxIn { dst: copy.device, extent, stream, data },
            ),
        }
    }

    /// Takes the bytes out of the answer.
    ///
    /// # Safety
    /// The program's memory is writable, in the rows of the copy.
    pub(super) unsafe fn copy_out_inline(
        &self,
        ctx: ContextId,
        copy: &HostCopy,
        sizes: Sizes,
    ) -> Result<()> {
        let (stream, extent, bytes) = (copy.stream, copy.extent, sizes.bytes);
        let to = copy.place().contiguous().map(|first| (first, bytes as usize));
        let row = copy.device_row();
        // SAFETY: by the contract above, nobody else has the memory until this returns.
        let reply = unsafe {
            match row {
                Some(src) => {
                    self.wait_for_bytes(ctx, &msg::CopyOut { src, stream, bytes: bytes as u32 }, to)
                }
                None => self.wait_for_bytes(
                    ctx,
                    &msg::CopyBoxOut { src: copy.device, extent, stream },
                    to,
                ),
            }
        }?;
        // The answer is what a wait behind the copy would have brought.
        self.progress().stream_done(ctx, stream, reply.seq);
        if reply.landed {
            return Ok(());
        }
        let mut reader = Reader::new(&reply.payload);
        let data = match row {
            Some(_) => reader.get::<msg::CopyOutReply<'_>>().map(|reply| reply.data),
            None => reader.get::<msg::CopyBoxOutReply<'_>>().map(|reply| reply.data),
        };
        let data = data
            .ok()
            .filter(|data| data.len() as u64 == bytes)
            .ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        // SAFETY: by the contract above, and the lengths agree.
        unsafe { copy.place().scatter(data.as_ptr(), data.len()) };
        Ok(())
    }
}
