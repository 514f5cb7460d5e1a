//! Copies of boxes: what is checked, staged and queued.

use outboard_abi::CUresult;
use outboard_front::backend::{
    BoxCopies, BoxCopy, ContextId, CopyMode, DevicePtr, Extent, HostPtr, Memory, Result, Side,
    StreamId,
};

use super::{BoxWork, Rows};
use crate::copy::MOST_STAGED;
use crate::cpu::{Cpu, lane};
use crate::memory::check_range;
use crate::work::Work;

impl Cpu {
    /// A copy that reads its source when it runs, however often that is.
    pub(crate) fn box_work(&self, copy: &BoxCopy) -> Result<BoxWork> {
        let (dst, src) = (self.rows(&copy.dst, copy.extent)?, self.rows(&copy.src, copy.extent)?);
        Ok(BoxWork { dst, src, extent: copy.extent, staged: None })
    }

    fn rows(&self, side: &Side, extent: Extent) -> Result<Rows> {
        match side.memory {
            Memory::Host(HostPtr(address)) => {
                Ok(Rows { address, layout: side.layout, _array: None })
            }
            Memory::Device(DevicePtr(address)) => {
                let span = side.layout.span(extent).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                check_range(self.engines()?, address, span)?;
                Ok(Rows { address, layout: side.layout, _array: None })
            }
            Memory::Array(id) => {
                let array = self.arrays.get(id)?;
                let (address, layout) = array.place(side.at, extent)?;
                Ok(Rows { address, layout, _array: Some(array) })
            }
        }
    }
}

impl BoxCopies for Cpu {
    unsafe fn copy_box(
        &'static self,
        ctx: ContextId,
        copy: &BoxCopy,
        stream: StreamId,
        mode: CopyMode,
    ) -> Result<()> {
        let extent = copy.extent;
        let context = self.context(ctx)?;
        let (dst, src) = (self.rows(&copy.dst, extent)?, self.rows(&copy.src, extent)?);
        let bytes = extent.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mut work = BoxWork { dst, src, extent, staged: None };
        let lane = lane(ctx, stream);
        let host = |side: &Side| matches!(side.memory, Memory::Host(_));
        match mode {
            _ if !host(&copy.dst) && !host(&copy.src) => {}
            CopyMode::Pinned => {}
            CopyMode::Synchronous => return self.run_blocking(&context, lane, Work::Box(work)),
            CopyMode::Pageable
                if host(&copy.dst)
                    || bytes > MOST_STAGED
                    || self.scheduler.lane_pending(ctx, lane)?.is_empty() =>
            {
                return self.scheduler.run(ctx, lane, Work::Box(work));
            }
            CopyMode::Pageable => {
                let mut staged = Vec::with_capacity(bytes as usize);
                for (offset, bytes) in extent.rows(work.src.layout) {
                    let row = (work.src.address + offset) as *const u8;
                    // SAFETY: the caller promises that the rows of the source are readable until
                    // this returns.
                    staged.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(row, bytes as usize)
                    });
                }
                work.staged = Some(staged.into());
            }
        }
        self.scheduler.submit(ctx, lane, Work::Box(work), None).map(drop)
    }
}
