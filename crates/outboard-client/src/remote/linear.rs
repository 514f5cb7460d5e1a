//! Copies of bytes in one piece, and fills.

use outboard_front::backend::{
    ContextId, CopyMode, DevicePtr, Fill, HostPtr, Rect, Result, StreamId, UnifiedPtr,
};
use outboard_wire::messages as msg;

use super::Remote;
use super::polled::{SMALL, Slot};
use super::shared::TouchedCopy;
use crate::copies::HostCopy;
use crate::link::bulk::Direction;

/// Bytes in one piece, as a copy on the device has them.
pub(super) fn row(bytes: u64) -> Rect {
    Rect { width: bytes, height: 1, dst_pitch: bytes, src_pitch: bytes }
}

impl Remote {
    /// # Safety
    /// As of `Backend::copy_to_device`.
    #[inline]
    pub(super) unsafe fn copy_to_device(
        &'static self,
        ctx: ContextId,
        dst: DevicePtr,
        src: *const u8,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        if self.host.is_shared(HostPtr::of(src), bytes) {
            return self.copy_pinned(
                ctx,
                (dst.unified(), HostPtr::of(src).unified()),
                bytes,
                stream,
                mode,
            );
        }
        // SAFETY: by the contract above.
        let plain = || unsafe {
            self.session()?.copy(
                ctx,
                &HostCopy::row(Direction::Up, dst, HostPtr::of(src), bytes, stream, mode),
            )
        };
        if !self.pager.is_any_active() {
            return plain();
        }
        let (device, host) = (dst, HostPtr::of(src));
        let copy = TouchedCopy { ctx, stream, to_device: true, device, host, bytes, mode };
        // SAFETY: as above.
        unsafe { self.copy_shared(&copy, plain) }
    }

    /// # Safety
    /// As of `Backend::copy_to_host`.
    #[inline]
    pub(super) unsafe fn copy_to_host(
        &'static self,
        ctx: ContextId,
        dst: *mut u8,
        src: DevicePtr,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        if self.host.is_shared(HostPtr::of(dst), bytes) {
            return self.copy_pinned(
                ctx,
                (HostPtr::of(dst).unified(), src.unified()),
                bytes,
                stream,
                mode,
            );
        }
        // SAFETY: by the contract above.
        let plain = || unsafe {
            self.session()?.copy(
                ctx,
                &HostCopy::row(Direction::Down, src, HostPtr::of(dst), bytes, stream, mode),
            )
        };
        if !self.pager.is_any_active() {
            if bytes <= SMALL && mode != CopyMode::Pinned {
                let queue = |slot: Slot| {
                    self.post_copy(ctx, slot.bytes().unified(), src.unified(), row(bytes), stream)
                };
                if let Some(slot) = self.poll_device(ctx, stream, queue)? {
                    // SAFETY: the slot is this thread's, and the device is done with it; the other
                    // by the contract above.
                    unsafe {
                        core::ptr::copy_nonoverlapping(slot.bytes().pointer(), dst, bytes as usize)
                    };
                    return Ok(());
                }
                return self.wait_in_worker(plain);
            }
            return plain();
        }
        let (device, host) = (src, HostPtr::of(dst));
        let copy = TouchedCopy { ctx, stream, to_device: false, device, host, bytes, mode };
        // SAFETY: as above.
        unsafe { self.copy_shared(&copy, plain) }
    }

    /// A copy from device memory to device memory, which kernels may share with the program.
    #[inline]
    pub(super) fn copy_on_device(
        &self,
        ctx: ContextId,
        dst: DevicePtr,
        src: DevicePtr,
        rect: Rect,
        stream: StreamId,
    ) -> Result<()> {
        let (dst, src) = (dst.unified(), src.unified());
        let post = || self.post_copy(ctx, dst, src, rect, stream);
        let span = |pitch: u64| pitch * (rect.height - 1) + rect.width;
        if self.is_tracked(dst, span(rect.dst_pitch)) || self.is_tracked(src, span(rect.src_pitch))
        {
            return self.work(ctx, stream, post);
        }
        post()
    }

    /// Queues a copy on the device.
    #[inline]
    pub(super) fn post_copy(
        &self,
        ctx: ContextId,
        dst: UnifiedPtr,
        src: UnifiedPtr,
        rect: Rect,
        stream: StreamId,
    ) -> Result<()> {
        let Rect { width, height, dst_pitch, src_pitch } = rect;
        self.post_to(
            ctx,
            stream,
            &msg::CopyOnDevice { dst, src, width, height, dst_pitch, src_pitch, stream },
        )
    }

    /// Fills memory, which kernels may share with the program.
    #[inline]
    pub(super) fn fill(&'static self, ctx: ContextId, fill: Fill, stream: StreamId) -> Result<()> {
        let Fill { dst, pitch, value, element, width, height } = fill;
        if self.host.may_contain(dst.unified().host()) {
            self.map_host(ctx, dst.unified().host())?;
        }
        let message = msg::Fill { dst, pitch, value, element, width, height, stream };
        self.post_using(
            ctx,
            stream,
            (dst, pitch * (height - 1) + width * u64::from(element)),
            &message,
        )
    }
}
