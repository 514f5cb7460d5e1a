//! Pools and their allocations, passed to other processes.

use core::ffi::{c_ulonglong, c_void};
use std::os::fd::BorrowedFd;

use outboard_abi::{CUmemAllocationHandleType, CUresult};

use crate::backend::Result;
use crate::border::require;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, and nothing else.
pub(crate) fn descriptor(kind: CUmemAllocationHandleType, flags: c_ulonglong) -> Result<()> {
    require(flags == 0)?;
    match kind {
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => Ok(()),
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC
        | CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32
        | CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32_KMT => {
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// A descriptor that a program gives as a pointer.
///
/// # Safety
/// The program keeps it open during the call.
pub(crate) unsafe fn given<'a>(handle: *mut c_void) -> Result<BorrowedFd<'a>> {
    let fd = i32::try_from(handle as u64).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: asks whether it is open, which it is then by the contract above.
    require(fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0)?;
    // SAFETY: open, as was just asked.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
