//! Copies of bytes in one piece, and fills.

use outboard_front::backend::{ContextId, CopyMode, Fill, Rect, Result, Stream};
use outboard_wire::messages as msg;

use super::seen::{SMALL, Slot};
use super::shared::TouchedCopy;
use super::{Remote, wire};

/// Bytes in one piece, as a copy on the device has them.
pub(super) fn row(bytes: u64) -> Rect {
    Rect { width: bytes, height: 1, dst_pitch: bytes, src_pitch: bytes }
}

impl Remote {
    /// # Safety
    /// As of `Backend::copy_to_device`.
    #[inline]
    pub(super) unsafe fn copy_to_device(
        &self,
        ctx: ContextId,
        dst: u64,
        src: *const u8,
        bytes: u64,
        stream: Stream,
        mode: CopyMode,
    ) -> Result<()> {
        if self.host.is_shared(src as u64, bytes) {
            return self.copy_pinned(ctx, (dst, src as u64), bytes, stream, mode);
        }
        // SAFETY: by the contract above.
        let plain = || unsafe { self.session()?.copy_to_device(ctx, dst, src, bytes, wire(stream), mode) };
        if !self.pager.is_active() {
            return plain();
        }
        let (device, host) = (dst, src as u64);
        let copy = TouchedCopy { ctx, stream, to_device: true, device, host, bytes, mode };
        // SAFETY: as above.
        unsafe { self.copy_shared(&copy, plain) }
    }

    /// # Safety
    /// As of `Backend::copy_to_host`.
    #[inline]
    pub(super) unsafe fn copy_to_host(
        &self,
        ctx: ContextId,
        dst: *mut u8,
        src: u64,
        bytes: u64,
        stream: Stream,
        mode: CopyMode,
    ) -> Result<()> {
        if self.host.is_shared(dst as u64, bytes) {
            return self.copy_pinned(ctx, (dst as u64, src), bytes, stream, mode);
        }
        // SAFETY: by the contract above.
        let plain = || unsafe { self.session()?.copy_to_host(ctx, dst, src, bytes, wire(stream), mode) };
        if !self.pager.is_active() {
            if bytes <= SMALL && mode != CopyMode::Pinned {
                let queue = |slot: Slot| self.post_copy(ctx, slot.bytes(), src, row(bytes), stream);
                if let Some(slot) = self.seen(ctx, stream, queue)? {
                    // SAFETY: the slot is this thread's, and the device is done with it; the other by the contract above.
                    unsafe { core::ptr::copy_nonoverlapping(slot.bytes() as *const u8, dst, bytes as usize) };
                    return Ok(());
                }
                return self.unseen(plain);
            }
            return plain();
        }
        let (device, host) = (src, dst as u64);
        let copy = TouchedCopy { ctx, stream, to_device: false, device, host, bytes, mode };
        // SAFETY: as above.
        unsafe { self.copy_shared(&copy, plain) }
    }

    /// A copy from device memory to device memory, which kernels may share with the program.
    #[inline]
    pub(super) fn copy_on_device(&self, ctx: ContextId, dst: u64, src: u64, rect: Rect, stream: Stream) -> Result<()> {
        let post = || self.post_copy(ctx, dst, src, rect, stream);
        let span = |pitch: u64| pitch * (rect.height - 1) + rect.width;
        if self.is_tracked(dst, span(rect.dst_pitch)) || self.is_tracked(src, span(rect.src_pitch)) {
            return self.work(ctx, stream, post);
        }
        post()
    }

    /// Queues a copy on the device.
    #[inline]
    pub(super) fn post_copy(&self, ctx: ContextId, dst: u64, src: u64, rect: Rect, stream: Stream) -> Result<()> {
        let Rect { width, height, dst_pitch, src_pitch } = rect;
        self.post_to(
            ctx,
            stream,
            &msg::CopyOnDevice { dst, src, width, height, dst_pitch, src_pitch, stream: wire(stream) },
        )
    }

    /// Fills memory, which kernels may share with the program.
    #[inline]
    pub(super) fn fill(&'static self, ctx: ContextId, fill: Fill, stream: Stream) -> Result<()> {
        let Fill { dst, pitch, value, element, width, height } = fill;
        if self.host.may_contain(dst) {
            self.map_host(ctx, dst)?;
        }
        let message = msg::Fill { dst, pitch, value, element, width, height, stream: wire(stream) };
        self.post_using(ctx, stream, (dst, pitch * (height - 1) + width * u64::from(element)), &message)
    }
}
