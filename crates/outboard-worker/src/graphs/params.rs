//! The driver's structures for nodes of graphs. Every object that a node names is looked up, and
//! device addresses must belong to the session.

use std::sync::Arc;

use outboard_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUcontext, CUmemorytype, CUresult, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpType_enum as Operation,
};
use outboard_wire::graph::{BatchNode, CopyNode, FillNode, KernelNode, Place, Rows};
use outboard_wire::{ContextId, UnifiedPtr};

use super::host::Memory;
use crate::answer::Outcome;
use crate::contexts::current;
use crate::launch::{Shape, with_node};
use crate::worker::Worker;

pub(super) const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// A C structure of numbers, pointers and unions of them, all zero.
pub(super) fn zeroed<T: Copy>() -> T {
    // SAFETY: used for such structures only, for which zero is a value.
    unsafe { core::mem::zeroed() }
}

impl Worker {
    /// Calls with the driver's structure for a kernel node.
    pub(super) fn with_kernel(
        &self,
        kernel: &KernelNode,
        run: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS) -> Outcome,
    ) -> Outcome {
        let func = self.code.function(kernel.function)?;
        let shape =
            Shape { grid: kernel.grid.into(), block: kernel.block.into(), shared: kernel.shared };
        with_node(func, &shape, &kernel.params, run)
    }

    pub(super) fn context_of(&self, ctx: ContextId) -> Result<CUcontext, CUresult> {
        self.contexts.get(ctx).map(|context| current(&context))
    }

    pub(super) fn fill(
        &self,
        fill: &FillNode,
    ) -> Result<(CUDA_MEMSET_NODE_PARAMS, CUcontext), CUresult> {
        let row = fill.width.checked_mul(u64::from(fill.element)).ok_or(INVALID)?;
        self.memory.allocations.check_rows(fill.dst, row, fill.height, fill.pitch)?;
        let p = CUDA_MEMSET_NODE_PARAMS {
            dst: fill.dst.0,
            pitch: fill.pitch as usize,
            value: fill.value,
            elementSize: u32::from(fill.element),
            width: fill.width as usize,
            height: fill.height as usize,
        };
        Ok((p, self.context_of(fill.ctx)?))
    }

    pub(super) fn batch(
        &self,
        batch: &BatchNode,
    ) -> Result<(Vec<CUstreamBatchMemOpParams>, CUcontext), CUresult> {
        let list = batch.operations.iter().map(|operation| {
            let kind = Operation(operation.kind);
            let bytes = match kind {
                Operation::CU_STREAM_MEM_OP_WAIT_VALUE_32
                | Operation::CU_STREAM_MEM_OP_WRITE_VALUE_32 => 4,
                Operation::CU_STREAM_MEM_OP_WAIT_VALUE_64
                | Operation::CU_STREAM_MEM_OP_WRITE_VALUE_64 => 8,
                Operation::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES
                | Operation::CU_STREAM_MEM_OP_BARRIER => 0,
                _ => return Err(INVALID),
            };
            let mut params: CUstreamBatchMemOpParams = zeroed();
            params.waitValue.operation = kind;
            if bytes > 0 {
                self.memory.allocations.check(operation.address, bytes)?;
                params.waitValue.address = operation.address.0;
                params.waitValue.__bindgen_anon_1.value64 = operation.value;
                params.waitValue.flags = operation.flags;
            } else if kind == Operation::CU_STREAM_MEM_OP_BARRIER {
                params.memoryBarrier.flags = operation.flags & 1;
            }
            Ok(params)
        });
        Ok((list.collect::<Result<_, _>>()?, self.context_of(batch.ctx)?))
    }

    /// The driver's structure for a copy; what is the client's memory is `memory` here.
    pub(super) fn copy(
        &self,
        copy: &CopyNode,
        memory: Option<&Arc<Memory>>,
    ) -> Result<CUDA_MEMCPY3D, CUresult> {
        let [width, height, depth] = copy.extent;
        let mut p: CUDA_MEMCPY3D = zeroed();
        (p.WidthInBytes, p.Height, p.Depth) = (width as usize, height as usize, depth as usize);
        let side = |place: &Place| match place {
            Place::Device(rows) => {
                let above = depth
                    .checked_sub(1)
                    .and_then(|slices| slices.checked_mul(rows.height))
                    .ok_or(INVALID)?;
                let all = above.checked_add(height).ok_or(INVALID)?;
                self.memory.allocations.check_rows(rows.address, width, all, rows.pitch)?;
                let kind = if self.memory.mapped.has(rows.address.0) {
                    CUmemorytype::CU_MEMORYTYPE_HOST
                } else {
                    CUmemorytype::CU_MEMORYTYPE_DEVICE
                };
                let Rows { address, pitch, height } = *rows;
                Ok((
                    kind,
                    Rows { address: address.unified(), pitch, height },
                    core::ptr::null_mut(),
                    [0; 3],
                ))
            }
            Place::Host(_) => {
                let address = memory.ok_or(INVALID)?.address().unified();
                let rows = Rows { address, pitch: width, height };
                Ok((CUmemorytype::CU_MEMORYTYPE_HOST, rows, core::ptr::null_mut(), [0; 3]))
            }
            Place::Array { array, at, .. } => {
                // The driver knows its bounds.
                let array = self.textures.array(*array)?.get();
                let none = Rows { address: UnifiedPtr::NULL, pitch: 0, height: 0 };
                Ok((CUmemorytype::CU_MEMORYTYPE_ARRAY, none, array, at.map(|at| at as usize)))
            }
        };
        let (kind, rows, array, at) = side(&copy.src)?;
        (p.srcMemoryType, p.srcArray, p.srcDevice) = (kind, array, rows.address.0);
        p.srcHost = rows.address.host().pointer();
        (p.srcPitch, p.srcHeight) = (rows.pitch as usize, rows.height as usize);
        [p.srcXInBytes, p.srcY, p.srcZ] = at;
        let (kind, rows, array, at) = side(&copy.dst)?;
        (p.dstMemoryType, p.dstArray, p.dstDevice) = (kind, array, rows.address.0);
        p.dstHost = rows.address.host().pointer();
        (p.dstPitch, p.dstHeight) = (rows.pitch as usize, rows.height as usize);
        [p.dstXInBytes, p.dstY, p.dstZ] = at;
        let on_device = |place: &Place| matches!(place, Place::Device(_));
        if height == 1 && depth == 1 && on_device(&copy.src) && on_device(&copy.dst) {
            // One row has no pitch: as one, its length might be more than a pitch can be.
            (p.srcPitch, p.srcHeight, p.dstPitch, p.dstHeight) = (0, 0, 0, 0);
        }
        Ok(p)
    }
}

pub(super) fn batch_params(
    list: &mut [CUstreamBatchMemOpParams],
    ctx: CUcontext,
    flags: u32,
) -> CUDA_BATCH_MEM_OP_NODE_PARAMS {
    CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx,
        count: list.len() as u32,
        paramArray: list.as_mut_ptr(),
        flags,
    }
}
