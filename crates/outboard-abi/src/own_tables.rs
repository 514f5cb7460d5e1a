//! The private tables by which Outboard's own libraries find in each other what CUDA has no
//! functions for. `cuGetExportTable` hands them out by their names. Each begins with its size in
//! bytes and stays as long as the process.

use core::ffi::c_int;

use crate::CUresult;

/// The name of a table.
pub type Name = [u8; 16];

/// Of the driver library for Outboard's `libnccl.so.2`.
pub const COLLECTIVES: Name = *b"outboard-nccl-01";

/// Of the driver library for `liboutboard-mpi.so`.
pub const MESSAGES: Name = *b"outboard-mpi--01";

/// Of the driver library for Outboard's `libcufile.so.0`.
pub const FILES: Name = *b"outboard-files01";

/// Of a driver library that checks every access, for whoever divides mappings into allocations.
#[repr(C)]
#[derive(Debug)]
pub struct Parts {
    /// The table's size in bytes.
    pub size: usize,
    /// Says which bytes from an address on may be used: [`Parts::CLOSED`], [`Parts::OPEN`] or
    /// [`Parts::DIVIDED`].
    pub change: unsafe extern "C" fn(address: u64, bytes: u64, state: u32) -> CUresult,
}

impl Parts {
    /// The table's name.
    pub const NAME: Name = *b"outboard-parts-1";
    /// No byte may be used.
    pub const CLOSED: u32 = 0;
    /// All bytes may be used, as one allocation.
    pub const OPEN: u32 = 1;
    /// Parts of them are opened and closed by themselves.
    pub const DIVIDED: u32 = 2;
}

/// Of the software device, for Outboard's `libnvml.so.1` in the same process.
#[repr(C)]
#[derive(Debug)]
pub struct Described {
    /// The table's size in bytes.
    pub size: usize,
    /// Writes the encoded platform where there is room for it, and returns how many bytes it has.
    pub describe: unsafe extern "C" fn(out: *mut u8, room: usize) -> usize,
    /// Writes how many bytes of a device's memory the process uses, and returns 1 if the process
    /// has a context on the device, else 0.
    pub in_use: unsafe extern "C" fn(ordinal: u32, bytes: *mut u64) -> u32,
}

impl Described {
    /// The table's name.
    pub const NAME: Name = *b"outboard-nvml-01";
}

/// Of the software device, for a process that may open no sockets: the files behind handles that
/// processes give each other (`cuIpcGetMemHandle`, `cuIpcGetEventHandle`,
/// `cuMemPoolExportPointer`). Whoever has asked for the table passes on the files itself, and the
/// device opens no socket for them.
#[repr(C)]
#[derive(Debug)]
pub struct HandleFiles {
    /// The table's size in bytes.
    pub size: usize,
    /// Duplicates the descriptor of the file behind a handle of this process. The duplicate is the
    /// caller's.
    pub file_of: unsafe extern "C" fn(handle: *const [u8; 64], out: *mut c_int) -> CUresult,
    /// Gives the device the file behind another process's handle, which is opened next. The
    /// descriptor stays the caller's.
    pub give: unsafe extern "C" fn(handle: *const [u8; 64], file: c_int) -> CUresult,
}

impl HandleFiles {
    /// The table's name.
    pub const NAME: Name = *b"outboard-ipc--01";
}
