//! From a graph to the program that runs.

use core::ffi::c_void;
use std::sync::Arc;

use outboard_abi::{
    CUgraphConditionalNodeType_enum as Kind, CUhostFn, CUresult,
    CUstreamBatchMemOpType_enum as Operation,
};
use outboard_front::backend::{
    BoxCopy, Extent, Fill, HostCall, Launch, Layout, Memory, ObjectId, Result, Side,
};
use outboard_wire::graph::{NodeParams, Place};
use parking_lot::Mutex;

use super::program::{Action, MemoryStep, Program};
use crate::cpu::Cpu;
use crate::memory::{check_range, extent};
use crate::work::Condition;

impl Cpu {
    /// What a graph runs as.
    pub(super) fn compile(&self, graph: ObjectId) -> std::result::Result<Program, (CUresult, u64)> {
        let model = self.graphs.models.get(graph).map_err(|error| (error, 0))?;
        let (order, nodes) = {
            let model = model.lock();
            if let Some((error, node)) = model.error {
                return Err((error, node));
            }
            (model.order().ok_or((CUresult::CUDA_ERROR_INVALID_VALUE, 0))?, model.nodes.clone())
        };
        let mut program = Program::default();
        for node in order {
            let Some(found) = nodes.get(&node) else { continue };
            let action = self.action(&found.params).map_err(|error| (error, node))?;
            program.push(node, found, action);
        }
        Ok(program)
    }

    /// What a node does when its turn comes.
    pub(super) fn action(&self, params: &NodeParams) -> Result<Action> {
        Ok(match params {
            NodeParams::Empty => Action::Nothing,
            NodeParams::Kernel(node) => {
                let function = self.function(node.function)?;
                let cooperative =
                    outboard_abi::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0;
                let launch = Launch {
                    function: node.function,
                    grid: node.grid,
                    block: node.block,
                    shared: node.shared,
                    params: &node.params,
                    cooperative: node
                        .attributes
                        .iter()
                        .any(|(id, value)| *id == cooperative && value[..4] != [0; 4]),
                    attributes: &node.attributes,
                };
                Action::Launch(Arc::new(self.grid(&function, node.ctx, &launch)?))
            }
            NodeParams::Copy(node) => {
                let [width, height, depth] = node.extent;
                let extent = Extent { width, height, depth };
                if extent.is_empty() || extent.bytes().is_none() {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                let copy = BoxCopy { dst: side(&node.dst), src: side(&node.src), extent };
                Action::Copy(Arc::new(self.box_work(&copy)?))
            }
            NodeParams::Fill(node) => {
                let row = node.width.checked_mul(u64::from(node.element));
                let row = row.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                let aligned = matches!(node.element, 1 | 2 | 4)
                    && node.dst.is_multiple_of(u64::from(node.element))
                    && (node.height == 1 || node.pitch.is_multiple_of(u64::from(node.element)));
                if !aligned {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                check_range(self.engines()?, node.dst.0, extent(row, node.height, node.pitch)?)?;
                Action::Fill(Fill {
                    dst: node.dst,
                    pitch: node.pitch,
                    value: node.value,
                    element: node.element,
                    width: node.width,
                    height: node.height,
                })
            }
            NodeParams::Host(node) => {
                // SAFETY: the number is a function pointer, or 0 for `None`: the front made it from
                // one.
                let function =
                    unsafe { core::mem::transmute::<usize, CUhostFn>(node.function as usize) };
                // SAFETY: the program gave both for this.
                let call = unsafe { HostCall::plain(function, node.data as *mut c_void) }?;
                Action::Host(Arc::new(Mutex::new(call)))
            }
            NodeParams::Child { graph, .. } => {
                Action::Child(Arc::new(self.compile(*graph).map_err(|(error, _)| error)?))
            }
            // Only workers capture.
            NodeParams::Captured { .. } => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            NodeParams::EventRecord { event } => {
                self.event(*event)?;
                Action::Record(*event)
            }
            NodeParams::EventWait { event } => {
                self.event(*event)?;
                Action::Wait(*event)
            }
            NodeParams::Allocate(_) => Action::Allocate,
            NodeParams::Free { address } => Action::Free(address.0),
            NodeParams::Batch(node) => {
                let steps = node.operations.iter().map(|operation| {
                    let word = |wide| self.word(operation.address.0, operation.value, wide);
                    let condition = || {
                        Condition::new(operation.flags).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
                    };
                    Ok(match Operation(operation.kind) {
                        Operation::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
                            MemoryStep::Wait(word(false)?, condition()?)
                        }
                        Operation::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                            MemoryStep::Wait(word(true)?, condition()?)
                        }
                        Operation::CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
                            MemoryStep::Write(word(false)?)
                        }
                        Operation::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                            MemoryStep::Write(word(true)?)
                        }
                        // All writes are seen in order here.
                        _ => MemoryStep::Nothing,
                    })
                });
                Action::Batch(steps.collect::<Result<Vec<_>>>()?.into())
            }
            NodeParams::Conditional(node) => {
                let start = self.graphs.starts.lock().get(&node.handle).copied();
                let body =
                    |body: &ObjectId| self.compile(*body).map(Arc::new).map_err(|(error, _)| error);
                let bodies = node.bodies.iter().map(body).collect::<Result<_>>()?;
                Action::Conditional(
                    start.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
                    Kind(node.kind),
                    bodies,
                )
            }
        })
    }
}

/// A side of a copy. Host addresses are of this process: the front that gave them is.
fn side(place: &Place) -> Side {
    let in_memory = |memory, pitch: u64, height| {
        let layout = Layout { pitch, slice: pitch.saturating_mul(height) };
        Side { memory, layout, at: (0, 0, 0) }
    };
    match place {
        Place::Device(rows) => in_memory(Memory::Device(rows.address), rows.pitch, rows.height),
        Place::Host(rows) => in_memory(Memory::Host(rows.address), rows.pitch, rows.height),
        Place::Array { array, at: [x, y, z], .. } => {
            Side { memory: Memory::Array(*array), layout: Layout::default(), at: (*x, *y, *z) }
        }
    }
}
