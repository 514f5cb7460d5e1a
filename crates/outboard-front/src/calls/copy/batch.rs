//! Copies in batches.

use core::ffi::c_ulonglong;

use outboard_abi::{
    CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUmemcpy3DOperand, CUmemcpy3DOperandType,
    CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUresult, CUstream,
};

use crate::array;
use crate::backend::{Backend, Extent, Result, StreamId, UnifiedPtr};
use crate::border::{put_if, require, slice};
use crate::copy::describe::{in_array, in_memory};
use crate::copy::{Copy, End, Operand, Wait};
use crate::copy_queue::Queue;
use crate::process::{Front, Process};
use crate::stream::find;

/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`: a hint.
const FLAGS: u32 = 1;

/// When the source of a copy may be read.
fn wait(order: CUmemcpySrcAccessOrder, flags: u32) -> Result<Wait> {
    require(flags & !FLAGS == 0)?;
    match order {
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        | CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY => Ok(Wait::Asynchronous),
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL => Ok(Wait::SourceTaken),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Queues a batch: `describe` returns the copy at an index. All are described before the first is
/// queued, and a failure of either kind names its index.
///
/// # Safety
/// Host memory that the copies name is the program's.
unsafe fn batch<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    count: usize,
    failed: *mut usize,
    describe: impl Fn(usize) -> Result<(Copy, Wait)>,
) -> Result<()> {
    // SAFETY: null or the program's out parameter; no single copy is to blame so far.
    unsafe { put_if(failed, usize::MAX) };
    let (here, stream) = find(process, stream)?;
    require(count > 0 && stream != StreamId::LEGACY)?;
    let blame = |index| {
        // SAFETY: as above.
        move |_: &CUresult| unsafe { put_if(failed, index) }
    };
    let copies: Vec<(Copy, Wait)> =
        (0..count).map(|index| describe(index).inspect_err(blame(index))).collect::<Result<_>>()?;
    let mut queue = Queue { here, stream, wait: Wait::Asynchronous };
    for (index, (copy, wait)) in copies.iter().enumerate() {
        queue.wait = *wait;
        // SAFETY: by the contract above.
        unsafe { queue.submit(process, copy) }.inspect_err(blame(index))?;
    }
    Ok(())
}

pub unsafe fn cuMemcpyBatchAsync<B: Backend>(
    process: &'static Process<B>,
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrs_idxs: *mut usize,
    num_attrs: usize,
    fail_idx: *mut usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program gives arrays of these lengths.
    let (dsts, srcs, sizes, attrs, first) = unsafe {
        (
            slice(dsts, count)?,
            slice(srcs, count)?,
            slice(sizes, count)?,
            slice(attrs, num_attrs)?,
            slice(attrs_idxs, num_attrs)?,
        )
    };
    require(
        first.first() == Some(&0)
            && first.is_sorted_by(|a, b| a < b)
            && first.iter().all(|index| *index < count),
    )?;
    let describe = |index: usize| {
        let of = first.partition_point(|start| *start <= index) - 1;
        let wait = wait(attrs[of].srcAccessOrder, attrs[of].flags)?;
        require(sizes[index] > 0)?;
        let copy = Copy::row(
            Operand::Unified(UnifiedPtr(dsts[index])),
            Operand::Unified(UnifiedPtr(srcs[index])),
            sizes[index] as u64,
        );
        Ok((copy, wait))
    };
    // SAFETY: the program's memory.
    unsafe { batch(process, stream, count, fail_idx, describe) }
}

pub unsafe fn cuMemcpyBatchAsync_v2<B: Backend>(
    process: &'static Process<B>,
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrs_idxs: *mut usize,
    num_attrs: usize,
    stream: CUstream,
) -> Result<()> {
    let none = core::ptr::null_mut();
    // SAFETY: as this function's.
    unsafe {
        cuMemcpyBatchAsync(
            process, dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, none, stream,
        )
    }
}

/// Bytes of an element of an operand, if it has any of its own.
fn element(front: &'static Front, operand: &CUmemcpy3DOperand) -> Result<Option<u64>> {
    match operand.type_ {
        CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER => Ok(None),
        CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY => {
            // SAFETY: the type says which member holds; both are plain numbers.
            let array = array::resolve(front, unsafe { operand.op.array.array })?;
            array.descriptor.element().map(Some).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// One side of a copy of `extent` bytes whose elements have `element` bytes.
fn end(
    front: &'static Front,
    operand: &CUmemcpy3DOperand,
    extent: Extent,
    element: u64,
) -> Result<End> {
    let scaled = |elements: usize| {
        (elements as u64).checked_mul(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    };
    // SAFETY: the type says which member holds; both are plain numbers.
    unsafe {
        if operand.type_ == CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY {
            let part = operand.op.array;
            let at = (scaled(part.offset.x)?, part.offset.y as u64, part.offset.z as u64);
            return Ok(in_array(array::resolve(front, part.array)?, at));
        }
        let part = operand.op.ptr;
        let pitch = if part.rowLength == 0 { extent.width } else { scaled(part.rowLength)? };
        let height = if part.layerHeight == 0 { extent.height } else { part.layerHeight as u64 };
        require(pitch >= extent.width && height >= extent.height)?;
        in_memory(Operand::Unified(UnifiedPtr(part.ptr)), pitch, height, (0, 0, 0))
    }
}

fn describe(front: &'static Front, op: &CUDA_MEMCPY3D_BATCH_OP) -> Result<(Copy, Wait)> {
    let wait = wait(op.srcAccessOrder, op.flags)?;
    let element = match (element(front, &op.dst)?, element(front, &op.src)?) {
        (Some(dst), Some(src)) if dst != src => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        (dst, src) => dst.or(src).unwrap_or(1),
    };
    let width =
        (op.extent.width as u64).checked_mul(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let extent = Extent { width, height: op.extent.height as u64, depth: op.extent.depth as u64 };
    require(!extent.is_empty())?;
    Ok((
        Copy {
            dst: end(front, &op.dst, extent, element)?,
            src: end(front, &op.src, extent, element)?,
            extent,
        },
        wait,
    ))
}

pub unsafe fn cuMemcpy3DBatchAsync<B: Backend>(
    process: &'static Process<B>,
    num_ops: usize,
    op_list: *mut CUDA_MEMCPY3D_BATCH_OP,
    fail_idx: *mut usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Result<()> {
    require(flags == 0)?;
    // SAFETY: the program gives an array of this length.
    let ops = unsafe { slice(op_list, num_ops)? };
    // SAFETY: the program's memory.
    unsafe { batch(process, stream, num_ops, fail_idx, |index| describe(process, &ops[index])) }
}

pub unsafe fn cuMemcpy3DBatchAsync_v2<B: Backend>(
    process: &'static Process<B>,
    num_ops: usize,
    op_list: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: c_ulonglong,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpy3DBatchAsync(process, num_ops, op_list, core::ptr::null_mut(), flags, stream) }
}
