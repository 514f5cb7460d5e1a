//! Copies of boxes.

use outboard_abi::{CUresult, CUstream};
use outboard_wire::HostPtr;
use outboard_wire::boxes::{Extent, Region, Storage};
use outboard_wire::messages::*;

use super::{Handle, Wait};
use crate::answer::{Answer, Outcome};
use crate::boxes::{self, Placed};
use crate::slots::{Slot, Slots};
use crate::staging::DeviceSide;
use crate::worker::Worker;

impl Worker {
    /// Looks up the memory of a region, and checks that the box lies within it.
    fn placed(&self, region: Region, extent: Extent) -> Result<Placed, CUresult> {
        if extent.is_empty() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        match region.storage {
            Storage::Linear(address) => {
                self.memory.allocations.check_box(address, region.layout, extent)?;
                Ok(if self.memory.mapped.has(address.0) {
                    Placed::shared(region)
                } else {
                    Placed::device(region)
                })
            }
            Storage::Array(name) => Ok(Placed::array(self.textures.array(name)?, region)),
        }
    }

    /// The target of a transfer of `bytes` from packed byte `from` on.
    pub(super) fn target(
        &self,
        region: Region,
        extent: Extent,
        from: u64,
        bytes: u64,
    ) -> Result<DeviceSide, CUresult> {
        let placed = self.placed(region, extent)?;
        let inside = extent
            .bytes()
            .is_some_and(|total| from.checked_add(bytes).is_some_and(|end| end <= total));
        match region.storage {
            _ if !inside => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            Storage::Linear(address) if extent == Extent::row(extent.width) => {
                Ok(DeviceSide::Linear(address.offset(from)))
            }
            _ => Ok(DeviceSide::Box { region: placed, extent, from }),
        }
    }

    pub(super) fn copy_box_on_device(&mut self, m: &CopyBox) -> Outcome {
        let stream = self.stream(m.stream)?;
        let (dst, src) = (self.placed(m.dst, m.extent)?, self.placed(m.src, m.extent)?);
        boxes::copy(self.table, &dst, &src, m.extent, stream)
    }

    pub(super) fn copy_small_box_in(&mut self, m: &CopyBoxIn<'_>) -> Outcome {
        let stream = self.stream(m.stream)?;
        let dst = self.placed(m.dst, m.extent)?;
        if m.extent.bytes() != Some(m.data.len() as u64) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // Not from the message itself: a driver may wait for the stream before it has read rows of
        // pageable memory.
        let slot = self.copies.pack(self.table, self.contexts.here(), m.data)?;
        let src = Placed::host(HostPtr::of(slot.pointer()), m.extent);
        boxes::copy(self.table, &dst, &src, m.extent, stream)?;
        self.copies.sent(self.table, slot, stream)
    }

    pub(super) fn copy_large_box_in(&mut self, m: &CopyBoxInBulk) -> Outcome {
        let target = |worker: &Worker| worker.target(m.dst, m.extent, m.from, m.bytes);
        let sizes = (m.transfer, m.bytes, m.chunk);
        if m.late {
            return self.start_copy_in_late(m.stream, sizes, target);
        }
        self.start_copy_in(m.stream, sizes, target, None)
    }

    pub(super) fn copy_queued_box_in(&mut self, m: &CopyBoxInQueued) -> Outcome {
        let target = |worker: &Worker| worker.target(m.dst, m.extent, m.from, m.bytes);
        self.start_copy_in_queued(m.stream, (m.transfer, m.bytes, m.chunk), target)
    }

    /// Starts a small copy to the host, into a buffer that the answer is made from.
    fn start_copy_box_out(
        &mut self,
        m: &CopyBoxOut,
    ) -> Result<(Slot, usize, Handle<outboard_abi::CUstream_st>), CUresult> {
        self.streams.waits.check_room()?;
        let stream: CUstream = self.stream(m.stream)?;
        let src = self.placed(m.src, m.extent)?;
        let bytes = m.extent.bytes().filter(|bytes| *bytes <= Slots::BYTES as u64);
        let bytes = bytes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? as usize;
        let slot = self.copies.slot(self.table, self.contexts.here())?;
        let dst = Placed::host(HostPtr::of(slot.pointer()), m.extent);
        boxes::copy(self.table, &dst, &src, m.extent, stream)?;
        Ok((slot, bytes, Handle::new(stream)))
    }

    pub(super) fn copy_small_box_out(&mut self, m: &CopyBoxOut, answer: Answer<CopyBoxOut>) {
        match self.start_copy_box_out(m) {
            Ok((slot, bytes, stream)) => {
                self.wait(Wait::Stream(stream), answer, move |answer, outcome| {
                    // SAFETY: the wait is for the stream as it was behind the copy.
                    let reply = |()| CopyBoxOutReply { data: unsafe { slot.bytes(bytes) } };
                    answer.result(outcome.map(reply));
                });
            }
            Err(error) => answer.error(error),
        }
    }

    pub(super) fn copy_large_box_out(&mut self, m: &CopyBoxOutBulk) -> Outcome {
        let target = |worker: &Worker| worker.target(m.src, m.extent, m.from, m.bytes);
        self.start_copy_out_bulk(m.stream, (m.transfer, m.bytes, m.chunk), target)
    }
}
