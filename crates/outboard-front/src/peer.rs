//! Access between devices.

use core::ffi::c_int;

use outboard_abi::{CUdevice, CUdevice_P2PAttribute};

use crate::Driver;
use crate::backend::Result;
use crate::border::put;
use crate::state::device;

pub(crate) unsafe fn cuDeviceCanAccessPeer<D: Driver>(out: *mut c_int, dev: CUdevice, peer: CUdevice) -> Result<()> {
    device(dev)?;
    device(peer)?;
    // Enabling it is not there yet, so programs must not count on it.
    // SAFETY: the program's out parameter.
    unsafe { put(out, 0) }
}

pub(crate) unsafe fn cuDeviceGetP2PAttribute<D: Driver>(
    out: *mut c_int,
    _attribute: CUdevice_P2PAttribute,
    src: CUdevice,
    dst: CUdevice,
) -> Result<()> {
    device(src)?;
    device(dst)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, 0) }
}
