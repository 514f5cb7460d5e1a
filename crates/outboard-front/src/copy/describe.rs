//! Copies as structures describe them.

use std::sync::Arc;

use outboard_abi::{
    CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v1,
};
use outboard_abi::{CUarray, CUmemorytype, CUresult};

use super::path::{Copy, End, Operand};
use crate::array::{self, Array};
use crate::backend::{Extent, HostPtr, Layout, Result, UnifiedPtr};
use crate::border::require;
use crate::process::Front;

/// One side of a copy as a structure describes it.
struct DescribedSide {
    kind: CUmemorytype,
    host: HostPtr,
    device: UnifiedPtr,
    array: CUarray,
    at: (u64, u64, u64),
    pitch: u64,
    height: u64,
}

impl DescribedSide {
    fn end(&self, front: &'static Front, extent: Extent) -> Result<End> {
        let base = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => Operand::Host(self.host),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => Operand::Device(self.device.device()),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => Operand::Unified(self.device),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => {
                return Ok(in_array(array::resolve(front, self.array)?, self.at));
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        require(self.height == 0 || self.height >= extent.height)?;
        let height =
            if self.height == 0 { self.at.1.saturating_add(extent.height) } else { self.height };
        let width = self.at.0.saturating_add(extent.width);
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        require(pitch >= width)?;
        in_memory(base, pitch, height, self.at)
    }
}

/// A side in an array.
pub(crate) fn in_array(array: Arc<Array>, at: (u64, u64, u64)) -> End {
    End { operand: Operand::Array(array), layout: Layout::default(), at }
}

/// A side in pitched memory, `at` bytes, rows and slices behind its address.
pub(crate) fn in_memory(
    base: Operand,
    pitch: u64,
    height: u64,
    at: (u64, u64, u64),
) -> Result<End> {
    let slice = pitch.checked_mul(height).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let layout = Layout { pitch, slice };
    let offset = layout.offset(at).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let operand = match base {
        Operand::Host(address) if !address.is_null() => {
            address.checked_add(offset).map(Operand::Host)
        }
        Operand::Device(address) if !address.is_null() => {
            address.checked_add(offset).map(Operand::Device)
        }
        Operand::Unified(address) if !address.is_null() => {
            address.checked_add(offset).map(Operand::Unified)
        }
        Operand::Array(array) => Some(Operand::Array(array)),
        Operand::Host(_) | Operand::Device(_) | Operand::Unified(_) => None,
    };
    let operand = operand.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(End { operand, layout, at: (0, 0, 0) })
}

/// A copy between two sides; an empty one names nothing.
fn between(
    front: &'static Front,
    dst: &DescribedSide,
    src: &DescribedSide,
    extent: Extent,
) -> Result<Option<Copy>> {
    if extent.is_empty() {
        return Ok(None);
    }
    Ok(Some(Copy { dst: dst.end(front, extent)?, src: src.end(front, extent)?, extent }))
}

/// Reads a structure of two dimensions, of either ABI.
macro_rules! two_dimensions {
    ($front:expr, $copy:expr) => {{
        let c = $copy;
        let dst = DescribedSide {
            kind: c.dstMemoryType,
            host: HostPtr::of(c.dstHost),
            device: UnifiedPtr(c.dstDevice.into()),
            array: c.dstArray,
            at: (c.dstXInBytes as u64, c.dstY as u64, 0),
            pitch: c.dstPitch as u64,
            height: 0,
        };
        let src = DescribedSide {
            kind: c.srcMemoryType,
            host: HostPtr::of(c.srcHost),
            device: UnifiedPtr(c.srcDevice.into()),
            array: c.srcArray,
            at: (c.srcXInBytes as u64, c.srcY as u64, 0),
            pitch: c.srcPitch as u64,
            height: 0,
        };
        between(
            $front,
            &dst,
            &src,
            Extent { width: c.WidthInBytes as u64, height: c.Height as u64, depth: 1 },
        )
    }};
}

/// Reads a structure of three dimensions, of any ABI.
macro_rules! three_dimensions {
    ($front:expr, $copy:expr) => {{
        let c = $copy;
        require(c.srcLOD == 0 && c.dstLOD == 0)?;
        let dst = DescribedSide {
            kind: c.dstMemoryType,
            host: HostPtr::of(c.dstHost),
            device: UnifiedPtr(c.dstDevice.into()),
            array: c.dstArray,
            at: (c.dstXInBytes as u64, c.dstY as u64, c.dstZ as u64),
            pitch: c.dstPitch as u64,
            height: c.dstHeight as u64,
        };
        let src = DescribedSide {
            kind: c.srcMemoryType,
            host: HostPtr::of(c.srcHost),
            device: UnifiedPtr(c.srcDevice.into()),
            array: c.srcArray,
            at: (c.srcXInBytes as u64, c.srcY as u64, c.srcZ as u64),
            pitch: c.srcPitch as u64,
            height: c.srcHeight as u64,
        };
        between(
            $front,
            &dst,
            &src,
            Extent { width: c.WidthInBytes as u64, height: c.Height as u64, depth: c.Depth as u64 },
        )
    }};
}

/// A structure that describes a copy.
pub(crate) trait Structure {
    /// The copy, if it copies anything.
    fn describe(&self, front: &'static Front) -> Result<Option<Copy>>;
}

impl Structure for CUDA_MEMCPY2D {
    fn describe(&self, front: &'static Front) -> Result<Option<Copy>> {
        two_dimensions!(front, self)
    }
}

impl Structure for CUDA_MEMCPY2D_v1 {
    fn describe(&self, front: &'static Front) -> Result<Option<Copy>> {
        two_dimensions!(front, self)
    }
}

impl Structure for CUDA_MEMCPY3D {
    fn describe(&self, front: &'static Front) -> Result<Option<Copy>> {
        require(self.reserved0.is_null() && self.reserved1.is_null())?;
        three_dimensions!(front, self)
    }
}

impl Structure for CUDA_MEMCPY3D_v1 {
    fn describe(&self, front: &'static Front) -> Result<Option<Copy>> {
        require(self.reserved0.is_null() && self.reserved1.is_null())?;
        three_dimensions!(front, self)
    }
}

impl Structure for CUDA_MEMCPY3D_PEER {
    fn describe(&self, front: &'static Front) -> Result<Option<Copy>> {
        // With unified addressing the addresses and arrays say which device is meant.
        three_dimensions!(front, self)
    }
}
