//! Structures of `cufile.h`. Counters of statistics are in [`crate::statistics`].

use core::ffi::{c_int, c_void};

/// `off_t`.
pub(crate) type Offset = i64;
/// A handle of a file or of a batch: a number, never an address.
pub(crate) type Handle = *mut c_void;

/// `CUfileDescr_t`.
#[repr(C)]
#[allow(unreachable_pub)]
pub struct Description {
    pub(crate) kind: u32,
    pub(crate) descriptor: Descriptor,
    pub(crate) functions: *const c_void,
}

/// What a [`Description`] is of.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Descriptor {
    pub(crate) fd: c_int,
    pub(crate) handle: *mut c_void,
}

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`, `_WIN32` and `CU_FILE_HANDLE_TYPE_USERSPACE_FS`.
pub(crate) const DESCRIPTOR: u32 = 1;
pub(crate) const WINDOWS: u32 = 2;
pub(crate) const USER_SPACE: u32 = 3;

/// `CUfileDrvProps_t`.
#[repr(C)]
#[allow(unreachable_pub)]
pub struct Properties {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) poll_threshold: usize,
    pub(crate) max_direct_io: usize,
    pub(crate) file_systems: u32,
    pub(crate) control: u32,
    pub(crate) features: u32,
    pub(crate) device_cache: u32,
    pub(crate) buffer_cache: u32,
    pub(crate) pinned: u32,
    pub(crate) batch: u32,
    pub(crate) batch_timeout: u32,
}

/// `CUfileIOVec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(unreachable_pub)]
pub struct Part {
    pub(crate) base: *mut c_void,
    pub(crate) bytes: usize,
}

/// `CUfileIOParams_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(unreachable_pub)]
pub struct Request {
    pub(crate) mode: u32,
    pub(crate) base: *mut c_void,
    pub(crate) file_offset: Offset,
    pub(crate) base_offset: Offset,
    pub(crate) bytes: usize,
    pub(crate) file: Handle,
    pub(crate) operation: u32,
    pub(crate) cookie: *mut c_void,
}

/// `CUfileIOEvents_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(unreachable_pub)]
pub struct Event {
    pub(crate) cookie: *mut c_void,
    pub(crate) status: u32,
    /// Bytes, or an error below 0.
    pub(crate) result: isize,
}
