//! Page-locked memory whose pages the worker has too, at the same addresses: copies from and to it
//! are the device's own, and nothing travels.

use std::os::fd::AsFd;

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, CopyMode, HostPtr, Memory, Result, Side, StreamId, UnifiedPtr,
};
use outboard_wire::messages as msg;

use super::Remote;
use super::linear::row;
use crate::host::Pinned;
use crate::mapped_file::MappedFile;
use crate::pager::page_bytes;

impl Remote {
    /// Allocates page-locked memory: shared, if the worker is on this machine and can have it.
    pub(super) fn alloc_host(&self, ctx: ContextId, bytes: usize) -> Result<*mut u8> {
        let shared = match self.session()?.link().memory() {
            Some(memory) => self.host.alloc_shared(ctx, bytes, memory),
            None => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        };
        // Memory that cannot be shared is usable all the same.
        let Ok((memory, offset)) = shared else { return self.host.alloc(ctx, bytes) };
        let (address, bytes_there) =
            (HostPtr::of(memory), (bytes as u64).next_multiple_of(page_bytes()));
        if self
            .call_idle(
                ctx,
                &msg::MappedShare { address: address.unified(), bytes: bytes_there, offset },
                |_| (),
            )
            .is_ok()
        {
            self.host.set_mapped(address, Some(ctx));
            return Ok(memory);
        }
        // SAFETY: just allocated, and nobody has it.
        unsafe { self.free_shared(memory) }?;
        self.host.alloc(ctx, bytes)
    }

    /// Frees page-locked memory that was allocated, which the device has no more.
    ///
    /// # Safety
    /// As of `Backend::host_free`.
    pub(super) unsafe fn free_host(&self, memory: *mut u8) -> Result<()> {
        // SAFETY: by the contract above.
        unsafe {
            match self.host.find(HostPtr::of(memory)) {
                Some((_, Pinned { shared: true, .. })) => self.free_shared(memory),
                _ => self.host.free(memory),
            }
        }
    }

    /// # Safety
    /// As of `HostMemory::free_shared`.
    unsafe fn free_shared(&self, memory: *mut u8) -> Result<()> {
        let file = self.session()?.link().memory().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: by the contract above.
        unsafe { self.host.free_shared(memory, file) }
    }

    /// Has the worker use the pages of memory that the program registers, if they are a file's and
    /// it can have them.
    pub(super) fn share_registered(&self, ctx: ContextId, memory: HostPtr, bytes: u64) {
        let Ok(session) = self.session() else { return };
        let link = session.link();
        if !link.takes_files() {
            return;
        }
        // A server gets no more of the program's bytes than it could read by itself, or than are
        // registered.
        let may_have = |mapped: &MappedFile| mapped.is_whole || link.server_sees_our_files();
        let Some(mapped) = MappedFile::at(memory.0..memory.0 + bytes).filter(may_have) else {
            return;
        };
        let Ok(number) = link.give_file(mapped.file.as_fd()) else { return };
        let message =
            msg::MappedFile { address: memory.unified(), bytes, number, offset: mapped.offset };
        if self.call_idle(ctx, &message, |_| ()).is_ok() {
            self.host.set_shared(memory, ctx);
        }
    }

    /// A copy one side of which is such memory.
    pub(super) fn copy_pinned(
        &self,
        ctx: ContextId,
        (dst, src): (UnifiedPtr, UnifiedPtr),
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        self.work(ctx, stream, || self.post_copy(ctx, dst, src, row(bytes), stream))?;
        self.after_copy(ctx, stream, mode)
    }

    /// Waits for a copy that was queued, unless the program does so itself.
    pub(super) fn after_copy(
        &self,
        ctx: ContextId,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        if mode == CopyMode::Pinned { Ok(()) } else { self.stream_synchronize(ctx, stream) }
    }

    /// Such memory as one side of the copy of a box, as the device knows it; `span` is from its
    /// first to behind its last byte.
    pub(super) fn pinned_side(&self, side: &Side, span: u64) -> Option<Side> {
        match side.memory {
            Memory::Host(address) if self.host.is_shared(address, span) => {
                Some(Side { memory: Memory::Device(address.unified().device()), ..*side })
            }
            _ => None,
        }
    }
}
