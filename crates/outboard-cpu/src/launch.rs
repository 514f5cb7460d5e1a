//! Grids in streams, and what becomes of their faults.

use std::sync::Arc;

use outboard_abi::{CUlaunchAttributeID_enum, CUresult};
use outboard_front::backend::{Launch, Result as Outcome};
use outboard_simt::{Fault, FaultKind, Kernel};

use crate::context::Context;
use crate::device;

/// A grid in a stream.
pub(crate) struct Grid {
    kernel: Arc<Kernel>,
    context: Arc<Context>,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: Box<[u8]>,
    cooperative: bool,
    /// How many threads of the engine may run it.
    pub(crate) processors: u32,
    /// What `%gridid` reads.
    number: u64,
    log: bool,
}

impl Grid {
    /// Fails where the blocks of a cluster are to work together: here each runs for itself.
    /// `cluster` is what the function has been fixed to.
    pub(crate) fn new(
        kernel: Arc<Kernel>,
        cluster: Option<[u32; 3]>,
        context: Arc<Context>,
        launch: &Launch<'_>,
        number: u64,
        log: bool,
    ) -> Outcome<Grid> {
        let asked = asked_cluster(launch);
        if let Some([x, y, z]) =
            [cluster, asked].into_iter().flatten().find(|cluster| *cluster != [1; 3])
        {
            if log {
                let name = kernel.name();
                outboard_threads::say(format_args!(
                    "kernel {name} asks for clusters of {x}x{y}x{z} blocks, which the software device does not have"
                ));
            }
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        Ok(Grid {
            kernel,
            context,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            params: launch.params.into(),
            cooperative: launch.cooperative,
            processors: u32::MAX,
            number,
            log,
        })
    }

    /// Runs the grid on this thread and the engine's.
    pub(crate) fn run(&self) -> Result<(), CUresult> {
        let output = |stream, text: &[u8]| self.context.output.push(stream, text);
        let launch = outboard_simt::Launch {
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared,
            params: &self.params,
            cooperative: self.cooperative,
            processors: self.processors,
            grid_id: self.number,
            output: Some(&output),
        };
        self.context.engine.launch(&self.kernel, &launch).map_err(|fault| {
            if self.log {
                outboard_threads::say(&fault);
            }
            error_of(&fault)
        })
    }
}

/// Blocks of a cluster in each dimension, if the launch says so.
fn asked_cluster(launch: &Launch<'_>) -> Option<[u32; 3]> {
    let dimension = CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.0;
    launch.attributes.iter().find(|(id, _)| *id == dimension).map(|(_, value)| dimensions(value))
}

fn dimensions(value: &[u8; 64]) -> [u32; 3] {
    let word = |at: usize| {
        u32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]).max(1)
    };
    [word(0), word(4), word(8)]
}

/// What the context reports after a fault.
fn error_of(fault: &Fault) -> CUresult {
    match fault.kind {
        FaultKind::IllegalAddress { .. } | FaultKind::MisalignedAddress { .. } => {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        }
        FaultKind::Assert(_) => CUresult::CUDA_ERROR_ASSERT,
        FaultKind::InvalidCall(_) => CUresult::CUDA_ERROR_INVALID_PC,
        FaultKind::StackOverflow => CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
        FaultKind::Deadlock { .. } => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
        FaultKind::OutOfResources(_) => CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        FaultKind::Trap | FaultKind::Unsupported(_) | FaultKind::InvalidLaunch(_) => {
            CUresult::CUDA_ERROR_LAUNCH_FAILED
        }
    }
}

/// Shared memory is given out in units of this many bytes.
const SHARED_UNIT: u64 = 128;

/// Blocks of `threads` threads that fit on a multiprocessor, by what a kernel takes.
pub(crate) fn blocks_per_multiprocessor(registers: u32, shared: u64, threads: u32) -> i32 {
    let warps = u64::from(threads.div_ceil(device::WARP).max(1));
    let shared =
        shared.saturating_add(u64::from(device::RESERVED_SHARED)).next_multiple_of(SHARED_UNIT);
    let registers = (u64::from(registers) * u64::from(device::WARP)).next_multiple_of(256).max(256);
    let fits = [
        u64::from(device::BLOCKS_PER_MULTIPROCESSOR),
        u64::from(device::THREADS_PER_MULTIPROCESSOR / device::WARP) / warps,
        u64::from(device::REGISTERS) / (registers * warps),
        u64::from(device::SHARED_PER_MULTIPROCESSOR) / shared,
    ];
    fits.into_iter().min().unwrap_or(0) as i32
}

/// Bytes of dynamic shared memory that each of `blocks` blocks can have on a multiprocessor, with
/// `fixed` bytes taken already.
pub(crate) fn dynamic_shared_of(blocks: u32, fixed: u64) -> u64 {
    let each =
        u64::from(device::SHARED_PER_MULTIPROCESSOR / blocks.max(1)) / SHARED_UNIT * SHARED_UNIT;
    let usable = each
        .saturating_sub(u64::from(device::RESERVED_SHARED))
        .min(u64::from(device::SHARED_OPTIN));
    usable.saturating_sub(fixed)
}

#[cfg(test)]
mod tests {
    use super::{blocks_per_multiprocessor, dynamic_shared_of};

    #[test]
    fn what_is_available_fits_and_no_more_would() {
        for fixed in [0, 128, 5000, 20_000] {
            for blocks in 1..=32 {
                let bytes = dynamic_shared_of(blocks, fixed);
                if bytes == 0 {
                    continue;
                }
                let fits = |bytes| blocks_per_multiprocessor(16, fixed + bytes, 32);
                assert!(
                    fits(bytes) >= blocks as i32,
                    "{blocks} blocks of {bytes} bytes and {fixed}"
                );
                assert!(
                    fits(bytes + 128) < blocks as i32,
                    "{blocks} blocks of more than {bytes} bytes and {fixed}"
                );
            }
        }
    }

    /// What an H200 answers.
    #[test]
    fn occupancy() {
        for (threads, blocks) in [(32, 32), (64, 32), (96, 21), (128, 16), (1024, 2)] {
            assert_eq!(blocks_per_multiprocessor(4, 0, threads), blocks, "{threads} threads");
        }
        for (shared, blocks) in [(1000, 32), (10_000, 20), (49_152, 4)] {
            assert_eq!(blocks_per_multiprocessor(4, shared, 64), blocks, "{shared} bytes");
        }
    }

    #[test]
    fn occupancy_by_registers() {
        assert_eq!(blocks_per_multiprocessor(128, 0, 1024), 0);
        assert_eq!(blocks_per_multiprocessor(64, 0, 256), 4);
    }

    #[test]
    fn occupancy_at_the_edge() {
        assert_eq!(blocks_per_multiprocessor(32, 227 << 10, 1), 1);
        assert_eq!(blocks_per_multiprocessor(32, 228 << 10, 1), 0);
        assert_eq!(blocks_per_multiprocessor(32, u64::MAX - 2000, 1), 0);
    }
}
