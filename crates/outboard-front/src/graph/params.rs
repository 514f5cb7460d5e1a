//! Operations of nodes, from the structures of cuda.h and back.

use outboard_abi::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUarray, CUcontext,
    CUfunction, CUmemorytype as Kind, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpType_enum as Operation,
};
use outboard_wire::graph::{
    BatchNode, CopyNode, FillNode, KernelNode, MemoryOperation, NodeParams, Place, Rows,
};

use super::model::{Given, INVALID, Plain};
use crate::backend::{
    self, Backend, BoxCopy, ContextId, DevicePtr, Extent, Layout, Memory, Result,
};
use crate::border::{require, slice};
use crate::context::{self, Here};
use crate::copy::{Resolved, Sides, Structure};
use crate::memory::{check_device, context_for};
use crate::process::{Front, Process};

/// A structure of cuda.h that has only numbers and pointers, all zero.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: used for C structures of numbers, pointers and unions of them, for which zero is a
    // value.
    unsafe { core::mem::zeroed() }
}

/// The structure of a copy whose sides are known.
pub(crate) fn structure(copy: &BoxCopy) -> CUDA_MEMCPY3D {
    let mut c: CUDA_MEMCPY3D = zeroed();
    let extent = copy.extent;
    (c.WidthInBytes, c.Height, c.Depth) =
        (extent.width as usize, extent.height as usize, extent.depth as usize);
    let rows = |layout: Layout| {
        (layout.pitch as usize, layout.slice.checked_div(layout.pitch).unwrap_or(0) as usize)
    };
    let at = |(x, y, z): (u64, u64, u64)| (x as usize, y as usize, z as usize);
    (c.srcXInBytes, c.srcY, c.srcZ) = at(copy.src.at);
    (c.dstXInBytes, c.dstY, c.dstZ) = at(copy.dst.at);
    match copy.src.memory {
        Memory::Host(address) => {
            (c.srcMemoryType, c.srcHost) = (Kind::CU_MEMORYTYPE_HOST, address.pointer())
        }
        Memory::Device(address) => {
            (c.srcMemoryType, c.srcDevice) = (Kind::CU_MEMORYTYPE_DEVICE, address.0)
        }
        Memory::Array(array) => {
            (c.srcMemoryType, c.srcArray) = (Kind::CU_MEMORYTYPE_ARRAY, array.0 as CUarray)
        }
    }
    match copy.dst.memory {
        Memory::Host(address) => {
            (c.dstMemoryType, c.dstHost) = (Kind::CU_MEMORYTYPE_HOST, address.pointer())
        }
        Memory::Device(address) => {
            (c.dstMemoryType, c.dstDevice) = (Kind::CU_MEMORYTYPE_DEVICE, address.0)
        }
        Memory::Array(array) => {
            (c.dstMemoryType, c.dstArray) = (Kind::CU_MEMORYTYPE_ARRAY, array.0 as CUarray)
        }
    }
    if !matches!(copy.src.memory, Memory::Array(_)) {
        (c.srcPitch, c.srcHeight) = rows(copy.src.layout);
    }
    if !matches!(copy.dst.memory, Memory::Array(_)) {
        (c.dstPitch, c.dstHeight) = rows(copy.dst.layout);
    }
    c
}

/// The location of a side of a copy, checked if it is on the device.
fn place(front: &'static Front, resolved: &Resolved, extent: Extent) -> Result<Place> {
    resolved.check(front, extent)?;
    let side = resolved.side;
    let Layout { pitch, slice } = side.layout;
    let height = slice.checked_div(pitch).unwrap_or(0);
    Ok(match side.memory {
        Memory::Host(address) => Place::Host(Rows { address, pitch, height }),
        Memory::Device(address) => Place::Device(Rows { address, pitch, height }),
        Memory::Array(array) => {
            Place::Array { array, at: [side.at.0, side.at.1, side.at.2], level: 0 }
        }
    })
}

/// A copy as a node has it.
pub(crate) fn copy(front: &'static Front, ctx: ContextId, sides: &Sides) -> Result<CopyNode> {
    let extent = sides.extent;
    require(!extent.is_empty())?;
    let (dst, src) = (place(front, &sides.dst, extent)?, place(front, &sides.src, extent)?);
    Ok(CopyNode { ctx, dst, src, extent: [extent.width, extent.height, extent.depth] })
}

/// The context that a structure names; null is the current one.
pub(crate) fn context(front: &'static Front, ctx: CUcontext) -> Result<Here> {
    context::named(front, ctx)?.live()
}

/// The parameters of a copy node.
pub(crate) fn copy_node(
    front: &'static Front,
    c: &CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Result<(NodeParams, Given)> {
    let here = context(front, ctx)?;
    let sides = c.describe(front)?.ok_or(INVALID)?.resolve(front)?;
    Ok((
        NodeParams::Copy(copy(front, here.id, &sides)?),
        Given::Copy(Box::new(Plain(*c)), here.context.handle),
    ))
}

/// The parameters of a fill node.
pub(crate) fn fill_node(
    front: &'static Front,
    p: &CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Result<(NodeParams, Given)> {
    let here = context(front, ctx)?;
    require(matches!(p.elementSize, 1 | 2 | 4) && p.width > 0 && p.height > 0)?;
    let (element, width, height, pitch) =
        (u64::from(p.elementSize), p.width as u64, p.height as u64, p.pitch as u64);
    let row = width.checked_mul(element).ok_or(INVALID)?;
    require(p.dst.is_multiple_of(element))?;
    require(height == 1 || (pitch >= row && pitch.is_multiple_of(element)))?;
    let bytes =
        pitch.checked_mul(height - 1).and_then(|above| above.checked_add(row)).ok_or(INVALID)?;
    let allocation = check_device(front, DevicePtr(p.dst), bytes)?;
    let node = FillNode {
        ctx: context_for(front, here.id, &allocation)?,
        dst: DevicePtr(p.dst),
        pitch,
        value: p.value,
        element: p.elementSize as u8,
        width,
        height,
    };
    Ok((NodeParams::Fill(node), Given::Context(here.context.handle)))
}

/// The structure of a fill node.
pub(crate) fn fill_params(node: &FillNode) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: node.dst.0,
        pitch: node.pitch as usize,
        value: node.value,
        elementSize: u32::from(node.element),
        width: node.width as usize,
        height: node.height as usize,
    }
}

/// The parameters of a kernel node; attributes are those of `attributes`.
///
/// # Safety
/// The structure's parameters are as cuda.h says.
pub(crate) unsafe fn kernel_node<B: Backend>(
    process: &'static Process<B>,
    p: &CUDA_KERNEL_NODE_PARAMS,
    attributes: Vec<(u32, [u8; 64])>,
) -> Result<(NodeParams, Given)> {
    let named = if p.func.is_null() { p.kern as CUfunction } else { p.func };
    require(!named.is_null())?;
    let function = if p.func.is_null() && !p.ctx.is_null() {
        crate::library::in_context(process, p.kern as u64, &context(process, p.ctx)?)?
    } else {
        crate::library::function(process, named)?
    };
    let here = function.live()?;
    let (grid, block) =
        ([p.gridDimX, p.gridDimY, p.gridDimZ], [p.blockDimX, p.blockDimY, p.blockDimZ]);
    let shape = crate::launch_check::Shape { grid, block, shared: p.sharedMemBytes };
    let limits = here.limits()?;
    crate::launch_check::check(&shape, &function, limits)?;
    let gather = |params: &[u8]| {
        if limits.beside_others {
            crate::launch_check::share_params(process, &function, &here, params)?;
        }
        Ok(params.to_vec())
    };
    // SAFETY: by the contract above.
    let params =
        unsafe { crate::launch_check::with_params(&function, p.kernelParams, p.extra, gather) }?;
    let function = function.id();
    let node = KernelNode {
        ctx: here.id,
        function,
        grid,
        block,
        shared: p.sharedMemBytes,
        params,
        attributes,
    };
    let given = Given::Kernel {
        function: p.func as u64,
        kernel: p.kern as u64,
        context: here.context.handle,
        pointers: Vec::new(),
    };
    Ok((NodeParams::Kernel(node), given))
}

/// Memory operations as a node has them.
pub(crate) fn batch(ctx: ContextId, operations: &[backend::MemoryOperation]) -> BatchNode {
    let operations = operations.iter().map(|operation| {
        let (kind, address, value, flags) = match *operation {
            backend::MemoryOperation::Wait { address, value, wide, flags } => {
                let kind = if wide {
                    Operation::CU_STREAM_MEM_OP_WAIT_VALUE_64
                } else {
                    Operation::CU_STREAM_MEM_OP_WAIT_VALUE_32
                };
                (kind, address, value, flags)
            }
            backend::MemoryOperation::Write { address, value, wide, flags } => {
                let kind = if wide {
                    Operation::CU_STREAM_MEM_OP_WRITE_VALUE_64
                } else {
                    Operation::CU_STREAM_MEM_OP_WRITE_VALUE_32
                };
                (kind, address, value, flags)
            }
            backend::MemoryOperation::Flush => {
                (Operation::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, DevicePtr::NULL, 0, 0)
            }
            backend::MemoryOperation::Barrier { flags } => {
                (Operation::CU_STREAM_MEM_OP_BARRIER, DevicePtr::NULL, 0, flags)
            }
        };
        MemoryOperation { kind: kind.0, address, value, flags }
    });
    BatchNode { ctx, operations: operations.collect(), flags: 0 }
}

/// The same as the program would have given them.
pub(crate) fn batch_structures(node: &BatchNode) -> Vec<CUstreamBatchMemOpParams> {
    let structure = |operation: &MemoryOperation| {
        let mut params: CUstreamBatchMemOpParams = zeroed();
        params.waitValue.operation = outboard_abi::CUstreamBatchMemOpType_enum(operation.kind);
        if operation.address.is_null() {
            params.memoryBarrier.flags = operation.flags;
            return params;
        }
        params.waitValue.address = operation.address.0;
        params.waitValue.__bindgen_anon_1.value64 = operation.value;
        params.waitValue.flags = operation.flags;
        params
    };
    node.operations.iter().map(structure).collect()
}

/// The parameters of a node of memory operations that a structure names.
///
/// # Safety
/// `operations` has `count` elements.
pub(crate) unsafe fn batch_node<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
    operations: *const CUstreamBatchMemOpParams,
    count: u32,
    flags: u32,
) -> Result<(NodeParams, Given)> {
    let here = context(process, ctx)?;
    require(count > 0)?;
    // SAFETY: by the contract above.
    let (list, given) = unsafe {
        (
            crate::memory_operations::list(process, &here, operations, count, flags)?,
            slice(operations, count as usize)?,
        )
    };
    let given = Given::Batch(Plain(given.to_vec()), here.context.handle);
    Ok((NodeParams::Batch(batch(here.id, &list)), given))
}
