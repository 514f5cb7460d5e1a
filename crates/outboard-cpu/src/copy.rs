//! Copies and fills: what is checked, what runs at once, what is staged and what is queued.

use outboard_abi::CUresult;
use outboard_front::backend::{CopyMode, Fill, Rect, Result};

use crate::context::Context;
use crate::cpu::Cpu;
use crate::memory::{check_range, extent};
use crate::sched::Lane;
use crate::work::Work;

/// Greatest copy from pageable memory that is staged when the stream is busy; beyond it the program
/// waits.
pub(crate) const MOST_STAGED: u64 = 1 << 20;

/// Zeros of so many bytes and more are written only where there may be others.
const LARGE: u64 = 1 << 20;

impl Cpu {
    /// Copies `bytes` from host memory at `src`.
    pub(crate) fn upload(
        &'static self,
        ctx: &Context,
        dst: u64,
        src: *const u8,
        bytes: u64,
        lane: Lane,
        mode: CopyMode,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        check_range(self.engines()?, dst, bytes)?;
        let work = Work::Copy { dst, src: src as u64, rect: row(bytes) };
        match mode {
            CopyMode::Synchronous => self.run_blocking(ctx, lane, work),
            CopyMode::Pinned => self.scheduler.submit(ctx.id, lane, work, None).map(drop),
            CopyMode::Pageable
                if bytes > MOST_STAGED || self.scheduler.lane_pending(ctx.id, lane)?.is_empty() =>
            {
                self.scheduler.run(ctx.id, lane, work)
            }
            CopyMode::Pageable => {
                // SAFETY: the caller of `copy_to_device` promises that the source is readable until
                // this returns.
                let bytes = unsafe { std::slice::from_raw_parts(src, bytes as usize) }.into();
                self.scheduler.submit(ctx.id, lane, Work::Upload { dst, bytes }, None).map(drop)
            }
        }
    }

    /// Copies `bytes` to host memory at `dst`.
    pub(crate) fn download(
        &'static self,
        ctx: &Context,
        dst: *mut u8,
        src: u64,
        bytes: u64,
        lane: Lane,
        mode: CopyMode,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        check_range(self.engines()?, src, bytes)?;
        let work = Work::Copy { dst: dst as u64, src, rect: row(bytes) };
        match mode {
            CopyMode::Synchronous => self.run_blocking(ctx, lane, work),
            CopyMode::Pageable => self.scheduler.run(ctx.id, lane, work),
            CopyMode::Pinned => self.scheduler.submit(ctx.id, lane, work, None).map(drop),
        }
    }

    pub(crate) fn copy_rect(
        &'static self,
        ctx: &Context,
        dst: u64,
        src: u64,
        rect: Rect,
        lane: Lane,
    ) -> Result<()> {
        if rect.width == 0 || rect.height == 0 {
            return Ok(());
        }
        check_range(self.engines()?, dst, extent(rect.width, rect.height, rect.dst_pitch)?)?;
        check_range(self.engines()?, src, extent(rect.width, rect.height, rect.src_pitch)?)?;
        self.scheduler.submit(ctx.id, lane, Work::Copy { dst, src, rect }, None).map(drop)
    }

    pub(crate) fn fill_rows(&'static self, ctx: &Context, fill: Fill, lane: Lane) -> Result<()> {
        if fill.width == 0 || fill.height == 0 {
            return Ok(());
        }
        let element = u64::from(fill.element);
        let aligned = matches!(element, 1 | 2 | 4)
            && fill.dst.is_multiple_of(element)
            && (fill.height == 1 || fill.pitch.is_multiple_of(element));
        let width = fill
            .width
            .checked_mul(element)
            .filter(|_| aligned)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        check_range(self.engines()?, fill.dst.0, extent(width, fill.height, fill.pitch)?)?;
        // Memory that nobody has touched is not to take any by that.
        let clears = fill.value == 0
            && fill.height == 1
            && width >= LARGE
            && self.engines()?.iter().any(|engine| engine.memory().contains(fill.dst.0));
        let work = match clears {
            true => Work::Clear { address: fill.dst.0, bytes: width },
            false => Work::Fill(fill),
        };
        self.scheduler.submit(ctx.id, lane, work, None).map(drop)
    }

    /// Runs work that the program waits for; what kernels before it printed appears.
    pub(crate) fn run_blocking(&'static self, ctx: &Context, lane: Lane, work: Work) -> Result<()> {
        let outcome = self.scheduler.run(ctx.id, lane, work);
        ctx.output.flush();
        outcome
    }
}

fn row(bytes: u64) -> Rect {
    Rect { width: bytes, height: 1, dst_pitch: 0, src_pitch: 0 }
}
