//! Copies of boxes: between memory with rows, arrays, and the host.

use std::ptr;
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::{
    BoxCopies, BoxCopy, ContextId, CopyMode, DevicePtr, Extent, HostPtr, Layout, Memory, Result,
    Side, StreamId,
};

use crate::array::Array;
use crate::copy::MOST_STAGED;
use crate::cpu::{Cpu, lane};
use crate::memory::check_range;
use crate::work::Work;

/// One side: where its rows lie, and what must live until they have been copied.
#[derive(Clone)]
struct Rows {
    address: u64,
    layout: Layout,
    _array: Option<Arc<Array>>,
}

/// A copy of a box in a stream.
pub(crate) struct BoxWork {
    dst: Rows,
    src: Rows,
    extent: Extent,
    /// The source's bytes, packed, if the program may have changed them meanwhile.
    staged: Option<Box<[u8]>>,
}

impl BoxWork {
    pub(crate) fn run(&self) {
        let packed = Layout::packed(self.extent);
        let (source, layout) = match &self.staged {
            Some(bytes) => (bytes.as_ptr() as u64, packed),
            None => (self.src.address, self.src.layout),
        };
        let rows = self.extent.rows(self.dst.layout).zip(self.extent.rows(layout));
        for ((to, bytes), (from, _)) in rows {
            // SAFETY: device addresses of the box were checked to lie in allocated or registered
            // memory, or in an array that lives as long as this; host addresses are the program's,
            // which promised that they are valid until the copy is done.
            unsafe {
                ptr::copy(
                    (source + from) as *const u8,
                    (self.dst.address + to) as *mut u8,
                    bytes as usize,
                )
            };
        }
    }
}

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
