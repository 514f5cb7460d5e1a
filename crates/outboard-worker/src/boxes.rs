//! Copies of boxes, as structures of the driver.

use outboard_abi::{CUDA_MEMCPY3D, CUarray, CUmemorytype, CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_wire::boxes::{Extent, Layout, Part, Region, Storage};
use outboard_wire::{DevicePtr, HostPtr, UnifiedPtr};

use super::objects::Handle;

/// One side of a copy, checked.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    kind: Kind,
    region: Region,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Memory of this process.
    Host,
    Device,
    Array(Handle<outboard_abi::CUarray_st>),
}

impl Placed {
    /// Packed in staging memory of this process.
    pub(crate) fn host(address: HostPtr, extent: Extent) -> Placed {
        let region = Region {
            storage: Storage::Linear(address.unified().device()),
            layout: Layout::packed(extent),
            at: (0, 0, 0),
        };
        Placed { kind: Kind::Host, region }
    }

    /// Page-locked memory of the client's that this process has too, whose range has been checked.
    pub(crate) fn shared(region: Region) -> Placed {
        Placed { kind: Kind::Host, region }
    }

    /// Device memory, whose range has been checked.
    pub(crate) fn device(region: Region) -> Placed {
        Placed { kind: Kind::Device, region }
    }

    /// An array. The driver knows its bounds.
    pub(crate) fn array(array: Handle<outboard_abi::CUarray_st>, region: Region) -> Placed {
        Placed { kind: Kind::Array(array), region }
    }

    /// The part of it that a part of its box is.
    pub(crate) fn part(&self, part: &Part) -> Result<Placed, CUresult> {
        let region = self.region.part(part).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(Placed { region, ..*self })
    }

    fn address(&self) -> UnifiedPtr {
        match self.region.storage {
            Storage::Linear(address) => address.unified(),
            Storage::Array(_) => UnifiedPtr::NULL,
        }
    }

    /// Bytes from row to row and rows from slice to slice, as the driver wants them: also where a
    /// box has but one of them.
    fn shape(&self, extent: Extent) -> Result<(usize, usize), CUresult> {
        let Layout { pitch, slice } = self.region.layout;
        let pitch = if extent.height == 1 && extent.depth == 1 { extent.width } else { pitch };
        let rows =
            if extent.depth == 1 { extent.height } else { slice.checked_div(pitch).unwrap_or(0) };
        let whole = extent.depth == 1 || rows.checked_mul(pitch) == Some(slice);
        if pitch < extent.width || rows < extent.height || !whole {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok((pitch as usize, rows as usize))
    }
}

/// One side in the driver's structure.
struct Side {
    kind: CUmemorytype,
    host: HostPtr,
    device: DevicePtr,
    array: CUarray,
    at: (usize, usize, usize),
    pitch: usize,
    rows: usize,
}

fn side(placed: &Placed, extent: Extent) -> Result<Side, CUresult> {
    let (x, y, z) = placed.region.at;
    let none = core::ptr::null_mut();
    Ok(match placed.kind {
        Kind::Array(array) => {
            let at = (x as usize, y as usize, z as usize);
            let kind = CUmemorytype::CU_MEMORYTYPE_ARRAY;
            Side {
                kind,
                host: HostPtr::NULL,
                device: DevicePtr::NULL,
                array: array.get(),
                at,
                pitch: 0,
                rows: 0,
            }
        }
        Kind::Host => {
            let (pitch, rows) = placed.shape(extent)?;
            let kind = CUmemorytype::CU_MEMORYTYPE_HOST;
            Side {
                kind,
                host: placed.address().host(),
                device: DevicePtr::NULL,
                array: none,
                at: (0, 0, 0),
                pitch,
                rows,
            }
        }
        Kind::Device => {
            let (pitch, rows) = placed.shape(extent)?;
            let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE;
            Side {
                kind,
                host: HostPtr::NULL,
                device: placed.address().device(),
                array: none,
                at: (0, 0, 0),
                pitch,
                rows,
            }
        }
    })
}

/// Queues a copy of a box.
pub(crate) fn copy(
    table: &Table,
    dst: &Placed,
    src: &Placed,
    extent: Extent,
    stream: CUstream,
) -> Result<(), CUresult> {
    let (dst, src) = (side(dst, extent)?, side(src, extent)?);
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: src.at.0,
        srcY: src.at.1,
        srcZ: src.at.2,
        srcLOD: 0,
        srcMemoryType: src.kind,
        srcHost: src.host.pointer(),
        srcDevice: src.device.0,
        srcArray: src.array,
        reserved0: core::ptr::null_mut(),
        srcPitch: src.pitch,
        srcHeight: src.rows,
        dstXInBytes: dst.at.0,
        dstY: dst.at.1,
        dstZ: dst.at.2,
        dstLOD: 0,
        dstMemoryType: dst.kind,
        dstHost: dst.host.pointer(),
        dstDevice: dst.device.0,
        dstArray: dst.array,
        reserved1: core::ptr::null_mut(),
        dstPitch: dst.pitch,
        dstHeight: dst.rows,
        WidthInBytes: extent.width as usize,
        Height: extent.height as usize,
        Depth: extent.depth as usize,
    };
    call!(table, cuMemcpy3DAsync_v2(&raw const copy, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(pitch: u64, slice: u64, extent: Extent) -> Option<(usize, usize)> {
        let region = Region {
            storage: Storage::Linear(DevicePtr(0x1000)),
            layout: Layout { pitch, slice },
            at: (0, 0, 0),
        };
        Placed::device(region).shape(extent).ok()
    }

    #[test]
    fn layouts_that_no_driver_can_be_told_of_are_refused() {
        let extent = |width, height, depth| Extent { width, height, depth };
        assert_eq!(shape(64, 640, extent(10, 4, 3)), Some((64, 10)));
        assert_eq!(shape(0, 0, extent(10, 1, 1)), Some((10, 1)), "one row has no pitch");
        assert_eq!(shape(64, 7, extent(10, 4, 1)), Some((64, 4)), "one slice has no distance");
        for (pitch, slice, extent) in [
            (9, 90, extent(10, 4, 1)),
            (64, 650, extent(10, 4, 3)),
            (64, 128, extent(10, 4, 3)),
            (0, 0, extent(10, 2, 2)),
            (u64::MAX, u64::MAX - 1, extent(10, 2, 2)),
        ] {
            assert_eq!(shape(pitch, slice, extent), None, "{pitch} {slice} {extent:?}");
        }
    }

    #[test]
    fn parts_of_a_packed_buffer_follow_one_another() {
        let extent = Extent { width: 10, height: 4, depth: 3 };
        let whole = Placed::host(HostPtr(0x1000), extent);
        for part in extent.parts(13..97) {
            assert_eq!(whole.part(&part).unwrap().address().0, 0x1000 + part.packed);
        }
    }
}
