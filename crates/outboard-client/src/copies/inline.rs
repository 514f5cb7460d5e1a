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
        let (stream, extent) = (copy.stream, copy.extent);
        let (seq, payload) = match copy.device_row() {
            Some(src) => self.wait(ctx, &msg::CopyOut { src, stream, bytes: sizes.bytes as u32 }),
            None => self.wait(ctx, &msg::CopyBoxOut { src: copy.device, extent, stream }),
        }?;
        // The answer is what a wait behind the copy would have brought.
        self.progress().stream_done(ctx, stream, seq);
        let mut reader = Reader::new(&payload);
        let data = match copy.device_row() {
            Some(_) => reader.get::<msg::CopyOutReply<'_>>().map(|reply| reply.data),
            None => reader.get::<msg::CopyBoxOutReply<'_>>().map(|reply| reply.data),
        };
        let data = data
            .ok()
            .filter(|data| data.len() as u64 == sizes.bytes)
            .ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        // SAFETY: by the contract above, and the lengths agree.
        unsafe { copy.place().scatter(data.as_ptr(), data.len()) };
        Ok(())
    }
}
