//! Copies between host and device while there is memory that both touch.

use outboard_front::backend::{ContextId, CopyMode, DevicePtr, HostPtr, Result, StreamId};

use crate::copies::HostCopy;
use crate::link::bulk::Direction;
use crate::pager::{Done, Tracked};
use crate::remote::Remote;
use crate::remote::linear::row;

/// A copy between host and device, either side of which may be memory that both touch.
#[derive(Clone, Copy)]
pub(in crate::remote) struct TouchedCopy {
    pub(in crate::remote) ctx: ContextId,
    pub(in crate::remote) stream: StreamId,
    pub(in crate::remote) to_device: bool,
    pub(in crate::remote) device: DevicePtr,
    pub(in crate::remote) host: HostPtr,
    pub(in crate::remote) bytes: u64,
    pub(in crate::remote) mode: CopyMode,
}

impl Remote {
    /// A copy between host and device while there is tracked memory; `plain` is the copy where none
    /// is.
    ///
    /// # Safety
    /// The host memory is valid as for `Backend::copy_to_device` or `Backend::copy_to_host`.
    pub(in crate::remote) unsafe fn copy_shared(
        &'static self,
        copy: &TouchedCopy,
        plain: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let TouchedCopy { ctx, stream, to_device, device, host, bytes, mode } = *copy;
        let tracked = self.tracked_on_host(ctx, host, bytes)?;
        if tracked == Tracked::None && !self.is_tracked(device.unified(), bytes) {
            if to_device {
                plain()?;
                // Natively, such a copy waits for the work before it.
                let waits = mode == CopyMode::Synchronous && self.pager.is_busy();
                return if waits { self.stream_synchronize(ctx, stream) } else { Ok(()) };
            }
            let done = Done::Stream((ctx, stream));
            return if mode == CopyMode::Pinned { plain() } else { self.waited(done, plain) };
        }
        let (dst, src) = match to_device {
            true => (device.unified(), host.unified()),
            false => (host.unified(), device.unified()),
        };
        self.work(ctx, stream, || match tracked {
            Tracked::None => plain(),
            Tracked::All => self.post_copy(ctx, dst, src, row(bytes), stream),
            // SAFETY: by the contract above.
            Tracked::Some => unsafe { self.copy_piecemeal(copy) },
        })?;
        if mode == CopyMode::Pinned { Ok(()) } else { self.stream_synchronize(ctx, stream) }
    }

    /// A copy whose host side is tracked in part. The bytes are touched here, where no lock is
    /// held.
    ///
    /// # Safety
    /// As of [`Remote::copy_shared`].
    unsafe fn copy_piecemeal(&self, copy: &TouchedCopy) -> Result<()> {
        let TouchedCopy { ctx, stream, to_device, device, host, bytes, .. } = *copy;
        let (session, mode, len) = (self.session()?, CopyMode::Synchronous, bytes as usize);
        // SAFETY: by the contract above, and the bytes of the vectors.
        unsafe {
            if to_device {
                let data = std::slice::from_raw_parts(host.pointer::<u8>(), len).to_vec();
                let host = HostPtr::of(data.as_ptr());
                return session
                    .copy(ctx, &HostCopy::row(Direction::Up, device, host, bytes, stream, mode));
            }
            let mut data = vec![0; len];
            let copied = HostPtr::of(data.as_mut_ptr());
            session
                .copy(ctx, &HostCopy::row(Direction::Down, device, copied, bytes, stream, mode))?;
            host.pointer::<u8>().copy_from_nonoverlapping(data.as_ptr(), len);
        }
        Ok(())
    }
}
