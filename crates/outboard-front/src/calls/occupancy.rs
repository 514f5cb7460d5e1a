//! Occupancy.

use core::ffi::{c_int, c_uint};

use outboard_abi::{
    CUdevice_attribute as A, CUfunction, CUfunction_attribute as F, CUlaunchConfig,
    CUoccupancyB2DSize, CUresult,
};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::device::value;
use crate::occupancy::blocks;
use crate::parts::occupancy::Question;
use crate::process::Process;

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    f: CUfunction,
    block: c_int,
    shared: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(process, out, f, block, shared, 0)
    }
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    f: CUfunction,
    block: c_int,
    shared: usize,
    flags: c_uint,
) -> Result<()> {
    let function = crate::library::function(process, f)?;
    require(!out.is_null())?;
    let block = u32::try_from(block).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, blocks(process, &function, block, shared, flags)?) }
}

pub unsafe fn cuOccupancyMaxPotentialBlockSize<B: Backend>(
    process: &'static Process<B>,
    grid: *mut c_int,
    block: *mut c_int,
    f: CUfunction,
    shared_of: CUoccupancyB2DSize,
    shared: usize,
    limit: c_int,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuOccupancyMaxPotentialBlockSizeWithFlags(
            process, grid, block, f, shared_of, shared, limit, 0,
        )
    }
}

pub unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags<B: Backend>(
    process: &'static Process<B>,
    grid: *mut c_int,
    block: *mut c_int,
    f: CUfunction,
    shared_of: CUoccupancyB2DSize,
    shared: usize,
    limit: c_int,
    flags: c_uint,
) -> Result<()> {
    let function = crate::library::function(process, f)?;
    require(!grid.is_null() && !block.is_null())?;
    let device = function.live()?.device()?;
    let warp = value(device, A::CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(1);
    let mut most = function.attribute(F::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    if limit > 0 {
        most = most.min(limit);
    }
    // From the largest block down, the one that keeps most threads resident.
    let full = value(device, A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    let mut best = (0, 0, 0);
    let mut size = most;
    while size > 0 {
        // SAFETY: the program's function, for just this.
        let shared = shared_of.map_or(shared, |of| unsafe { of(size) });
        let count = blocks(process, &function, size as u32, shared, flags)?;
        if size * count > best.0 {
            best = (size * count, size, count);
        }
        if best.0 >= full {
            break;
        }
        size = if size % warp == 0 { size - warp } else { size / warp * warp };
    }
    let processors = value(device, A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    // SAFETY: the program's out parameters.
    unsafe {
        put(grid, best.2 * processors)?;
        put(block, best.1)
    }
}

pub unsafe fn cuOccupancyMaxActiveClusters<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    f: CUfunction,
    config: *const CUlaunchConfig,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { clusters(process, out, f, config, false) }
}

pub unsafe fn cuOccupancyMaxPotentialClusterSize<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    f: CUfunction,
    config: *const CUlaunchConfig,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { clusters(process, out, f, config, true) }
}

/// # Safety
/// `out` is null or valid for a write, `config` null or the program's structure.
unsafe fn clusters<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    f: CUfunction,
    config: *const CUlaunchConfig,
    largest: bool,
) -> Result<()> {
    require(!out.is_null())?;
    // SAFETY: by the contract above.
    unsafe {
        let count = crate::launch::ask(process, f, config, |function, here, launch| {
            let ask = || {
                here.note(process.backend.occupancy_clusters(here.id, launch, largest))
                    .map(i64::from)
            };
            if here.green().is_some() {
                // Its share of the device counts, too.
                return ask();
            }
            let attributes = launch.attributes.to_vec();
            let shape = Box::new((
                launch.grid,
                launch.block,
                launch.shared,
                launch.cooperative,
                attributes,
            ));
            function.answers.get(&Question::Clusters { shape, largest }, ask)
        })?;
        put(out, count as c_int)
    }
}

pub unsafe fn cuOccupancyAvailableDynamicSMemPerBlock<B: Backend>(
    process: &'static Process<B>,
    out: *mut usize,
    f: CUfunction,
    wanted: c_int,
    block: c_int,
) -> Result<()> {
    let function = crate::library::function(process, f)?;
    require(!out.is_null() && wanted > 0 && block > 0)?;
    let here = function.live()?;
    // The driver chooses how much of the cache becomes shared memory, so only the driver can
    // answer.
    let ask = || {
        let bytes = here.note(process.backend.occupancy_dynamic_shared(
            here.id,
            function.id(),
            wanted,
            block,
        ))?;
        i64::try_from(bytes).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
    };
    let bytes = function.answers.get(&Question::DynamicShared { blocks: wanted, block }, ask)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, bytes as usize) }
}
