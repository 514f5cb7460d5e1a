//! The linker of a server.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, JitLog, LinkInput, ObjectId, Result};
use outboard_wire::messages as msg;

use super::image::PIECE;
use super::{Remote, succeed};

impl Remote {
    pub(super) fn link_add(
        &self,
        ctx: ContextId,
        link: ObjectId,
        input: LinkInput<'_>,
        log: &mut JitLog,
    ) -> Result<()> {
        let session = self.session()?;
        // The pieces of two images must not mix.
        let _one_at_a_time = session.upload();
        for data in input.data.chunks(PIECE) {
            self.post(ctx, &msg::ImageData { data })?;
        }
        let options = input.options.clone();
        let message = msg::LinkAdd { link, kind: input.kind, name: input.name, options };
        let (status, said) = self.call(ctx, &message, |reply| (reply.status, reply.log))?;
        *log = said;
        succeed(status)
    }

    pub(super) fn link_complete(
        &self,
        ctx: ContextId,
        link: ObjectId,
        log: &mut JitLog,
    ) -> Result<Vec<u8>> {
        let (status, bytes, said) = self.call(ctx, &msg::LinkComplete { link }, |reply| {
            (reply.status, reply.bytes, reply.log)
        })?;
        *log = said;
        succeed(status)?;
        let mut image = Vec::new();
        while (image.len() as u64) < bytes {
            let offset = image.len() as u64;
            let piece =
                self.call(ctx, &msg::LinkOutput { link, offset }, |reply| reply.data.to_vec())?;
            if piece.is_empty() {
                return Err(CUresult::CUDA_ERROR_UNKNOWN);
            }
            image.extend_from_slice(&piece);
        }
        Ok(image)
    }
}
