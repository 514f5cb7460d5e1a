//! Types of nvml.h 13.2 that the header of 13.0 lacks, of functions that the library of the driver
//! 580 has. Their fields have the header's names.
#![allow(non_camel_case_types, non_snake_case, missing_docs)]

use core::ffi::c_uint;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nvmlRemappedRowsInfo_v2_t {
    pub corrActiveRemaps: c_uint,
    pub corrInactiveRemaps: c_uint,
    pub uncActiveRemaps: c_uint,
    pub uncInactiveRemaps: c_uint,
    pub bPending: c_uint,
    pub bFailureOccurred: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nvmlUnrepairableMemoryStatus_v1_t {
    pub bUnrepairableMemory: c_uint,
}
