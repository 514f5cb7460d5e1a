//! Images on their way to the server: named by content first, and sent if it does not have them.

use std::sync::atomic::Ordering;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Image, JitLog, ObjectId, Result};
use outboard_image::{ImageHash, Narrowed, may_print, narrowed};
use outboard_wire::messages as msg;
use outboard_wire::types::{ImageName, JitOptions};

use super::{Remote, succeed};
use crate::session::Session;

/// Bytes of an image that travel in one message.
pub(super) const PIECE: usize = 1 << 20;
/// The server may lose an image between two questions, but not again and again.
const ATTEMPTS: usize = 4;

/// One part of an image, as it travels.
enum Part<'a> {
    Whole(&'a [u8]),
    Narrowed(Narrowed<'a>),
}

impl Part<'_> {
    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Part::Whole(bytes) => Box::new(std::iter::once(*bytes)),
            Part::Narrowed(narrowed) => Box::new(narrowed.pieces()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Part::Whole(bytes) => bytes.len(),
            Part::Narrowed(narrowed) => narrowed.len(),
        }
    }

    fn name(&self) -> ImageName {
        ImageName { hash: ImageHash::of_pieces(self.pieces()).0, bytes: self.len() as u64 }
    }
}

/// The parts of an image that are sent: of a fat binary, what its device may be given.
fn parts<'a>(image: &Image<'a>) -> Vec<Part<'a>> {
    if let [whole] = image.parts
        // Options may ask for another program than the driver would choose by itself.
        && *image.options == JitOptions::default()
        && let Some(narrowed) = narrowed(whole, image.sm)
    {
        return vec![Part::Narrowed(narrowed)];
    }
    image.parts.iter().map(|part| Part::Whole(part)).collect()
}

impl Remote {
    pub(super) fn module_load(
        &self,
        ctx: ContextId,
        id: ObjectId,
        image: Image<'_>,
        log: &mut JitLog,
    ) -> Result<()> {
        let session = self.session()?;
        if !matches!(image.parts, [whole] if !may_print(whole, image.sm)) {
            self.polled.disable();
        }
        let parts = parts(&image);
        if session.images().not_kept.load(Ordering::Relaxed) {
            return self.load_sent(ctx, id, &image, &parts, log);
        }
        let names: Vec<ImageName> = parts.iter().map(Part::name).collect();
        // The pieces belong to the command that follows them.
        let _one_at_a_time = session.upload();
        for attempt in 0..ATTEMPTS {
            let message = msg::ModuleLoadNamed {
                module: id,
                parts: names.clone(),
                options: image.options.clone(),
            };
            let read = |reply: msg::ModuleLoadNamedReply| {
                (reply.status, reply.log, reply.missing, reply.kept)
            };
            let (status, said, missing, kept) = self.call(ctx, &message, read)?;
            if missing.is_empty() {
                let counter =
                    if attempt == 0 { &session.images().known } else { &session.images().sent };
                counter.fetch_add(1, Ordering::Relaxed);
                *log = said;
                return succeed(status);
            }
            session.images().not_kept.store(!kept, Ordering::Relaxed);
            for index in missing {
                let part = parts.get(index as usize).ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
                self.send_part(session, ctx, part)?;
                self.post(ctx, &msg::ImageComplete { name: names[index as usize] })?;
            }
        }
        Err(CUresult::CUDA_ERROR_UNKNOWN)
    }

    /// Loads an image that is sent in any case.
    fn load_sent(
        &self,
        ctx: ContextId,
        id: ObjectId,
        image: &Image<'_>,
        parts: &[Part<'_>],
        log: &mut JitLog,
    ) -> Result<()> {
        let session = self.session()?;
        // The pieces of two images must not mix.
        let _one_at_a_time = session.upload();
        for part in parts {
            self.send_part(session, ctx, part)?;
        }
        let sizes = parts.iter().map(|part| part.len() as u64).collect();
        let message = msg::ModuleLoad { module: id, parts: sizes, options: image.options.clone() };
        let (status, said) = self.call(ctx, &message, |reply| (reply.status, reply.log))?;
        session.images().sent.fetch_add(1, Ordering::Relaxed);
        *log = said;
        succeed(status)
    }

    fn send_part(&self, session: &Session, ctx: ContextId, part: &Part<'_>) -> Result<()> {
        session.images().bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        for data in part.pieces().flat_map(|piece| piece.chunks(PIECE)) {
            self.post(ctx, &msg::ImageData { data })?;
        }
        Ok(())
    }
}
