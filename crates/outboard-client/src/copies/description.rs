//! A copy between the program's memory and the device, described once for every way that its bytes
//! may take.

use std::ops::Range;

use outboard_abi::CUresult;
use outboard_front::backend::{CopyMode, DevicePtr, HostPtr, Result, StreamId};
use outboard_wire::boxes::{Extent, Layout, Region, Storage};

use crate::link::bulk::{Direction, HostBytes};

/// A copy between the program's memory and the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCopy {
    pub(crate) direction: Direction,
    pub(crate) device: Region,
    /// The shape of the copy: one row, or a box.
    pub(crate) extent: Extent,
    /// The first byte of the program's memory.
    pub(crate) host: HostPtr,
    /// Of the program's memory.
    pub(crate) layout: Layout,
    pub(crate) stream: StreamId,
    pub(crate) mode: CopyMode,
}

/// How large a copy is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes that travel.
    pub(super) bytes: u64,
    /// From the first to behind the last byte of the program's memory.
    pub(super) span: u64,
}

impl HostCopy {
    /// A copy of bytes in one piece.
    pub(crate) fn row(
        direction: Direction,
        device: DevicePtr,
        host: HostPtr,
        bytes: u64,
        stream: StreamId,
        mode: CopyMode,
    ) -> HostCopy {
        let layout = Layout { pitch: bytes, slice: bytes };
        let device = Region { storage: Storage::Linear(device), layout, at: (0, 0, 0) };
        HostCopy { direction, device, extent: Extent::row(bytes), host, layout, stream, mode }
    }

    /// Its sizes, if they are numbers.
    pub(super) fn sizes(&self) -> Result<Sizes> {
        let sizes = self.extent.bytes().zip(self.layout.span(self.extent));
        sizes.map(|(bytes, span)| Sizes { bytes, span }).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The device memory of a copy of bytes in one piece.
    pub(super) fn device_row(&self) -> Option<DevicePtr> {
        match self.device.storage {
            Storage::Linear(address) if self.extent == Extent::row(self.extent.width) => {
                Some(address)
            }
            _ => None,
        }
    }

    /// The address of its bytes in the program's memory.
    pub(super) fn place(&self) -> HostBytes {
        let first = self.host.pointer::<u8>();
        match self.device_row() {
            Some(_) => HostBytes::from(first),
            None => HostBytes::rows(first, self.extent, self.layout),
        }
    }

    /// The program's memory from packed byte `from` on, `bytes` of them: for a box, all of its
    /// memory.
    pub(super) fn host_range(&self, sizes: Sizes, from: u64, bytes: u64) -> Range<HostPtr> {
        match self.device_row() {
            Some(_) => self.host.offset(from).range(bytes),
            None => self.host.range(sizes.span),
        }
    }
}
