//! Occupancy: how many blocks of a kernel fit on a multiprocessor.

use core::ffi::{c_int, c_uint};
use std::sync::Arc;

use arc_swap::ArcSwap;
use outboard_abi::{
    CUdevice_attribute as A, CUfunction, CUfunction_attribute as F, CUlaunchConfig, CUoccupancyB2DSize, CUresult,
};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::device::value;
use crate::function::{self, Function};
use crate::process::Process;

/// Blocks that fit on a multiprocessor. Libraries ask the same again and again, so answers are kept with the function.
pub(crate) fn blocks<B: Backend>(
    process: &'static Process<B>,
    function: &Function,
    block: u32,
    shared: usize,
    flags: u32,
) -> Result<i32> {
    let here = function.live()?;
    require(block > 0 && flags & !1 == 0)?;
    let ask =
        || here.note(process.backend.occupancy(here.id, function.id(), block, shared as u64, flags)).map(i64::from);
    let question = Question::Blocks { block, shared: shared as u64, flags };
    Ok(function.answers.get(&question, ask)? as i32)
}

/// What was asked about the occupancy of one function, with the answers.
#[derive(Debug, Default)]
pub(crate) struct Answers(ArcSwap<Vec<(Question, i64)>>);

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    /// Blocks of so many threads, with so many bytes of dynamic shared memory, that fit on a multiprocessor.
    Blocks { block: u32, shared: u64, flags: u32 },
    /// Bytes of dynamic shared memory that so many blocks of so many threads can have.
    DynamicShared { blocks: i32, block: i32 },
    /// Clusters of a launch that fit on the device, or how large one may be.
    Clusters { shape: Box<Shape>, largest: bool },
}

/// What a launch looks like: grid, block, dynamic shared memory, whether it is cooperative, attributes.
type Shape = ([u32; 3], [u32; 3], u32, bool, Vec<(u32, [u8; 64])>);

impl Answers {
    /// Answers that are kept; a search for the best block size asks a few dozen times.
    const MOST: usize = 64;

    fn get(&self, question: &Question, ask: impl FnOnce() -> Result<i64>) -> Result<i64> {
        let known = self.0.load();
        if let Some((_, answer)) = known.iter().find(|(asked, _)| asked == question) {
            return Ok(*answer);
        }
        drop(known);
        // What is forgotten meanwhile must not come back: only then has the list another address.
        let known = self.0.load_full();
        let answer = ask()?;
        let kept = if known.len() >= Self::MOST { &[] } else { known.as_slice() };
        let all = kept.iter().cloned().chain([(question.clone(), answer)]).collect();
        self.0.compare_and_swap(&known, Arc::new(all));
        Ok(answer)
    }

    /// The function's attributes have changed, and its occupancy with them.
    pub(crate) fn forget(&self) {
        self.0.store(Arc::default());
    }
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    f: CUfunction,
    block: c_int,
    shared: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(process, out, f, block, shared, 0) }
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    f: CUfunction,
    block: c_int,
    shared: usize,
    flags: c_uint,
) -> Result<()> {
    let function = function::resolve(process, f)?;
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
    unsafe { cuOccupancyMaxPotentialBlockSizeWithFlags(process, grid, block, f, shared_of, shared, limit, 0) }
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
    let function = function::resolve(process, f)?;
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
            let ask = || here.note(process.backend.occupancy_clusters(here.id, launch, largest)).map(i64::from);
            if here.green().is_some() {
                // Which part of the device it has counts, too.
                return ask();
            }
            let attributes = launch.attributes.to_vec();
            let shape = Box::new((launch.grid, launch.block, launch.shared, launch.cooperative, attributes));
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
    let function = function::resolve(process, f)?;
    require(!out.is_null() && wanted > 0 && block > 0)?;
    let here = function.live()?;
    // Which share of the cache becomes shared memory is the driver's choice, so only it can tell.
    let ask = || {
        let bytes = here.note(process.backend.occupancy_dynamic_shared(here.id, function.id(), wanted, block))?;
        i64::try_from(bytes).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
    };
    let bytes = function.answers.get(&Question::DynamicShared { blocks: wanted, block }, ask)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, bytes as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_until_attributes_change() {
        let answers = Answers::default();
        let blocks = |block, shared| Question::Blocks { block, shared, flags: 0 };
        assert_eq!(answers.get(&blocks(128, 0), || Ok(16)), Ok(16));
        assert_eq!(answers.get(&blocks(128, 0), || Ok(1)), Ok(16));
        assert_eq!(answers.get(&blocks(128, 1), || Err(CUresult::CUDA_ERROR_INVALID_VALUE)).ok(), None);
        assert_eq!(answers.get(&blocks(128, 1), || Ok(8)), Ok(8), "errors are not kept");
        let clusters = |grid, largest| {
            let shape = Box::new(([grid, 1, 1], [128, 1, 1], 0, false, vec![(4, [1; 64])]));
            Question::Clusters { shape, largest }
        };
        assert_eq!(answers.get(&clusters(8, false), || Ok(66)), Ok(66));
        assert_eq!(answers.get(&clusters(8, true), || Ok(16)), Ok(16));
        assert_eq!(answers.get(&clusters(8, false), || Ok(0)), Ok(66));
        for block in 0..1000 {
            assert_eq!(answers.get(&blocks(block, 7), || Ok(block.into())), Ok(block.into()));
        }
        answers.forget();
        assert_eq!(answers.get(&blocks(128, 0), || Ok(2)), Ok(2));
    }
}
