//! Page-locked memory of the client. The device does not read it, so that plain pages do; what matters is that the front knows them.

use core::ffi::c_void;

use outboard_abi::CUresult;
use outboard_front::backend::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Where page-locked memory comes from.
#[derive(Debug)]
pub(crate) struct HostMemory;

impl HostMemory {
    /// Allocates zeroed pages, `bytes` of them at least.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<*mut u8> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        memory.map(<*mut c_void>::cast).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Frees what [`HostMemory::alloc`] gave.
    ///
    /// # Safety
    /// `memory` and `bytes` are of one such allocation, which nobody uses any more.
    pub(crate) unsafe fn free(&self, memory: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: by the contract above.
        unsafe { munmap(memory.cast(), bytes) }.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}
