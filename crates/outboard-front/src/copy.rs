//! Copies: which side is where, and rows of what does not lie in one piece.

use core::ffi::c_void;

use outboard_abi::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUmemorytype, CUresult, CUstream};

use crate::Driver;
use crate::backend::{CopyMode, Rect, Result, Stream};
use crate::border::require;
use crate::context::Here;
use crate::memory::{check_device, find};
use crate::stream::{DefaultStream, resolve, resolve_default};

/// Whether a call returns before its copy is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Synchronous,
    Asynchronous,
}

/// Where a copy is queued.
struct Queue<'a> {
    here: &'a Here,
    stream: Stream,
    wait: Wait,
}

impl Queue<'_> {
    /// What a copy from or to this host memory may assume about it.
    fn mode(&self, host: u64, bytes: u64) -> CopyMode {
        let pinned = || find(host).is_some_and(|(base, len, a)| a.kind.is_host() && bytes <= len - (host - base));
        match self.wait {
            Wait::Synchronous => CopyMode::Synchronous,
            Wait::Asynchronous if pinned() => CopyMode::Pinned,
            Wait::Asynchronous => CopyMode::Pageable,
        }
    }

    /// # Safety
    /// `src` is readable for `bytes`, for as long as CUDA says.
    unsafe fn to_device<D: Driver>(&self, dst: u64, src: *const c_void, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        require(!src.is_null())?;
        if is_host(dst) {
            // SAFETY: the program's memory on both sides.
            return unsafe { self.on_host::<D>(dst as *mut c_void, src, bytes) };
        }
        check_device(dst, bytes)?;
        let mode = self.mode(src as u64, bytes);
        // SAFETY: by the contract above.
        self.here.note(unsafe { D::get().copy_to_device(self.here.id, dst, src.cast(), bytes, self.stream, mode) })
    }

    /// # Safety
    /// `dst` is writable for `bytes`, for as long as CUDA says.
    unsafe fn to_host<D: Driver>(&self, dst: *mut c_void, src: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        require(!dst.is_null())?;
        if is_host(src) {
            // SAFETY: the program's memory on both sides.
            return unsafe { self.on_host::<D>(dst, src as *const c_void, bytes) };
        }
        check_device(src, bytes)?;
        let mode = self.mode(dst as u64, bytes);
        // SAFETY: by the contract above.
        self.here.note(unsafe { D::get().copy_to_host(self.here.id, dst.cast(), src, bytes, self.stream, mode) })
    }

    fn on_device<D: Driver>(&self, dst: u64, src: u64, rect: Rect) -> Result<()> {
        if rect.width == 0 || rect.height == 0 {
            return Ok(());
        }
        let span = |pitch: u64| pitch * (rect.height - 1) + rect.width;
        check_device(dst, span(rect.dst_pitch))?;
        check_device(src, span(rect.src_pitch))?;
        self.here.note(D::get().copy_on_device(self.here.id, dst, src, rect, self.stream))
    }

    /// Both sides are host memory: the stream's work comes first.
    ///
    /// # Safety
    /// As of a copy of `bytes` from `src` to `dst`.
    unsafe fn on_host<D: Driver>(&self, dst: *mut c_void, src: *const c_void, bytes: u64) -> Result<()> {
        require(!dst.is_null() && !src.is_null())?;
        self.here.note(D::get().stream_synchronize(self.here.id, self.stream))?;
        // SAFETY: by the contract above; the regions may overlap.
        unsafe { core::ptr::copy(src.cast::<u8>(), dst.cast::<u8>(), bytes as usize) };
        Ok(())
    }

    /// A copy whose sides are told apart by their addresses.
    ///
    /// # Safety
    /// Host addresses are the program's to read and write.
    unsafe fn unified<D: Driver>(&self, dst: u64, src: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by the contract above.
        unsafe {
            match (is_device(dst), is_device(src)) {
                (true, true) => self.on_device::<D>(dst, src, row(bytes)),
                (true, false) => self.to_device::<D>(dst, src as *const c_void, bytes),
                (false, true) => self.to_host::<D>(dst as *mut c_void, src, bytes),
                (false, false) => self.on_host::<D>(dst as *mut c_void, src as *const c_void, bytes),
            }
        }
    }
}

fn row(bytes: u64) -> Rect {
    Rect { width: bytes, height: 1, dst_pitch: bytes, src_pitch: bytes }
}

fn is_device(address: u64) -> bool {
    find(address).is_some_and(|(_, _, a)| !a.kind.is_host())
}

fn is_host(address: u64) -> bool {
    find(address).is_some_and(|(_, _, a)| a.kind.is_host())
}

/// Runs a copy in the stream that a call names.
fn queue<D: Driver>(stream: CUstream, wait: Wait, copy: impl FnOnce(&Queue<'_>) -> Result<()>) -> Result<()> {
    let (here, stream) = resolve::<D>(stream)?;
    copy(&Queue { here: &here, stream, wait })
}

/// Runs a copy in the default stream that a call means.
fn queue_default<D: Driver>(default: DefaultStream, copy: impl FnOnce(&Queue<'_>) -> Result<()>) -> Result<()> {
    let (here, stream) = resolve_default::<D>(default)?;
    copy(&Queue { here: &here, stream, wait: Wait::Synchronous })
}

pub(crate) unsafe fn cuMemcpyHtoD_v2<D: Driver>(
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    queue_default::<D>(default, |q| unsafe { q.to_device::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyDtoH_v2<D: Driver>(
    dst: *mut c_void,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    queue_default::<D>(default, |q| unsafe { q.to_host::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyDtoD_v2<D: Driver>(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: page-locked memory may stand in for device memory.
    queue_default::<D>(default, |q| unsafe { q.unified::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyHtoDAsync_v2<D: Driver>(
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    queue::<D>(stream, Wait::Asynchronous, |q| unsafe { q.to_device::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyDtoHAsync_v2<D: Driver>(
    dst: *mut c_void,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    queue::<D>(stream, Wait::Asynchronous, |q| unsafe { q.to_host::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyDtoDAsync_v2<D: Driver>(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: page-locked memory may stand in for device memory.
    queue::<D>(stream, Wait::Asynchronous, |q| unsafe { q.unified::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpy<D: Driver>(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    queue_default::<D>(default, |q| unsafe { q.unified::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyAsync<D: Driver>(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    queue::<D>(stream, Wait::Asynchronous, |q| unsafe { q.unified::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyPeer<D: Driver>(
    dst: CUdeviceptr,
    _dst_context: CUcontext,
    src: CUdeviceptr,
    _src_context: CUcontext,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: page-locked memory may stand in for device memory.
    queue_default::<D>(default, |q| unsafe { q.unified::<D>(dst, src, bytes as u64) })
}

pub(crate) unsafe fn cuMemcpyPeerAsync<D: Driver>(
    dst: CUdeviceptr,
    _dst_context: CUcontext,
    src: CUdeviceptr,
    _src_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: page-locked memory may stand in for device memory.
    queue::<D>(stream, Wait::Asynchronous, |q| unsafe { q.unified::<D>(dst, src, bytes as u64) })
}

/// One side of a box of bytes: the address of its first byte, bytes from row to row and from slice to slice.
#[derive(Clone, Copy)]
struct Side {
    address: u64,
    device: bool,
    pitch: u64,
    slice: u64,
}

/// What a structure says of one side.
struct Place {
    kind: CUmemorytype,
    host: u64,
    device: CUdeviceptr,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Place {
    fn side(&self, width: usize, rows: usize) -> Result<Side> {
        let (base, device) = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => (self.host, false),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (self.device, true),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (self.device, is_device(self.device)),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let pitch = if self.pitch == 0 { width + self.x } else { self.pitch };
        require(pitch >= width + self.x)?;
        let height = if self.height == 0 { rows + self.y } else { self.height };
        let slice = (pitch as u64).checked_mul(height as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let offset = self.x as u64 + self.y as u64 * pitch as u64 + self.z as u64 * slice;
        require(base != 0)?;
        Ok(Side { address: base + offset, device, pitch: pitch as u64, slice })
    }
}

/// Copies a box of `width` bytes × `height` rows × `depth` slices.
///
/// # Safety
/// Host addresses are the program's to read and write.
unsafe fn boxed<D: Driver>(q: &Queue<'_>, dst: &Place, src: &Place, [width, height, depth]: [usize; 3]) -> Result<()> {
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    let (dst, src) = (dst.side(width, height)?, src.side(width, height)?);
    let (width, height, depth) = (width as u64, height as u64, depth as u64);
    let dense = |side: &Side| (height == 1 || side.pitch == width) && (depth == 1 || side.slice == width * height);
    if dense(&dst) && dense(&src) && dst.device != src.device {
        // SAFETY: by the contract above.
        return unsafe { q.unified::<D>(dst.address, src.address, width * height * depth) };
    }
    for z in 0..depth {
        let (to, from) = (dst.address + z * dst.slice, src.address + z * src.slice);
        if dst.device && src.device {
            q.on_device::<D>(to, from, Rect { width, height, dst_pitch: dst.pitch, src_pitch: src.pitch })?;
            continue;
        }
        for y in 0..height {
            // SAFETY: by the contract above.
            unsafe { q.unified::<D>(to + y * dst.pitch, from + y * src.pitch, width) }?;
        }
    }
    Ok(())
}

/// # Safety
/// `copy` is null or the program's structure.
unsafe fn copy_2d<D: Driver>(q: &Queue<'_>, copy: *const CUDA_MEMCPY2D) -> Result<()> {
    // SAFETY: by the contract above.
    let c = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let dst = Place {
        kind: c.dstMemoryType,
        host: c.dstHost as u64,
        device: c.dstDevice,
        x: c.dstXInBytes,
        y: c.dstY,
        z: 0,
        pitch: c.dstPitch,
        height: 0,
    };
    let src = Place {
        kind: c.srcMemoryType,
        host: c.srcHost as u64,
        device: c.srcDevice,
        x: c.srcXInBytes,
        y: c.srcY,
        z: 0,
        pitch: c.srcPitch,
        height: 0,
    };
    // SAFETY: the program's memory.
    unsafe { boxed::<D>(q, &dst, &src, [c.WidthInBytes, c.Height, 1]) }
}

/// # Safety
/// `copy` is null or the program's structure.
unsafe fn copy_3d<D: Driver>(q: &Queue<'_>, copy: *const CUDA_MEMCPY3D) -> Result<()> {
    // SAFETY: by the contract above.
    let c = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(c.srcLOD == 0 && c.dstLOD == 0)?;
    let dst = Place {
        kind: c.dstMemoryType,
        host: c.dstHost as u64,
        device: c.dstDevice,
        x: c.dstXInBytes,
        y: c.dstY,
        z: c.dstZ,
        pitch: c.dstPitch,
        height: c.dstHeight,
    };
    let src = Place {
        kind: c.srcMemoryType,
        host: c.srcHost as u64,
        device: c.srcDevice,
        x: c.srcXInBytes,
        y: c.srcY,
        z: c.srcZ,
        pitch: c.srcPitch,
        height: c.srcHeight,
    };
    // SAFETY: the program's memory.
    unsafe { boxed::<D>(q, &dst, &src, [c.WidthInBytes, c.Height, c.Depth]) }
}

pub(crate) unsafe fn cuMemcpy2D_v2<D: Driver>(copy: *const CUDA_MEMCPY2D, default: DefaultStream) -> Result<()> {
    // SAFETY: the program's structure.
    queue_default::<D>(default, |q| unsafe { copy_2d::<D>(q, copy) })
}

pub(crate) unsafe fn cuMemcpy2DUnaligned_v2<D: Driver>(
    copy: *const CUDA_MEMCPY2D,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's structure.
    queue_default::<D>(default, |q| unsafe { copy_2d::<D>(q, copy) })
}

pub(crate) unsafe fn cuMemcpy2DAsync_v2<D: Driver>(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Result<()> {
    // SAFETY: the program's structure.
    queue::<D>(stream, Wait::Asynchronous, |q| unsafe { copy_2d::<D>(q, copy) })
}

pub(crate) unsafe fn cuMemcpy3D_v2<D: Driver>(copy: *const CUDA_MEMCPY3D, default: DefaultStream) -> Result<()> {
    // SAFETY: the program's structure.
    queue_default::<D>(default, |q| unsafe { copy_3d::<D>(q, copy) })
}

pub(crate) unsafe fn cuMemcpy3DAsync_v2<D: Driver>(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Result<()> {
    // SAFETY: the program's structure.
    queue::<D>(stream, Wait::Asynchronous, |q| unsafe { copy_3d::<D>(q, copy) })
}
