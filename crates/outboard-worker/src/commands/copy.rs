//! Copies and fills.

use outboard_abi::{CUmemorytype, CUresult, CUstream};
use outboard_driver::call;
use outboard_session::chunks::Cut;
use outboard_wire::limits::UNSTAGED_FROM;
use outboard_wire::messages::*;
use outboard_wire::request::SEND;
use outboard_wire::{DevicePtr, StreamId, UnifiedPtr};

use super::{Handle, Wait, current};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::CopyCommands;
use crate::io::{Bulk, Replier};
use crate::slots::{Slot, Slots};
use crate::staging::{self, CopySite, DeviceSide, Failed, Reached, Registered};
use crate::worker::Worker;
use outboard_control::meter::{self, Direction, Way};

/// A program that allocates this many bytes may be about to copy as much to it.
const LARGE: u64 = 1 << 20;

impl Worker {
    /// Device memory has been allocated: has staging memory made ready meanwhile, if there is none
    /// yet.
    pub(crate) fn expect_copies(&mut self, bytes: u64) {
        if bytes < LARGE {
            return;
        }
        let ctx = self.contexts.here();
        let Ok(context) = self.contexts.get(ctx) else { return };
        let shared = self.client.replier().and_then(Replier::memory);
        let Some(ahead) = self.copies.expect(ctx, shared) else { return };
        let table = self.table;
        self.helpers.run(move || {
            if call!(table, cuCtxSetCurrent(current(&context))).is_ok() {
                ahead.run(table);
            }
        });
    }

    /// Where a large copy of the command's context runs, in `stream`.
    pub(super) fn copy_site(
        &mut self,
        stream: CUstream,
    ) -> Result<staging::CopySite<'_>, CUresult> {
        let ctx = self.contexts.here();
        let context = self.contexts.get(ctx)?;
        let replier = self.client.replier().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        Ok(self.copies.site(self.table, (ctx, &context), stream, replier))
    }

    /// The same for a copy whose bytes come or go over a link to another server.
    pub(super) fn peer_copy_site<'a>(
        &'a mut self,
        link: &'a Bulk,
        stream: CUstream,
    ) -> Result<staging::CopySite<'a>, CUresult> {
        Ok(staging::CopySite { bulk: link, ..self.copy_site(stream)? })
    }

    /// Starts a large copy to the device. `reached` is called when its stream has come to it, from
    /// another thread.
    pub(super) fn start_copy_in(
        &mut self,
        stream: StreamId,
        sizes: (u64, u64, u32),
        target: impl FnOnce(&Worker) -> Result<DeviceSide, CUresult>,
        reached: Option<Reached>,
    ) -> Outcome {
        let transfer = sizes.0;
        self.start_bulk(
            (stream, sizes),
            target,
            |site, cut, target| staging::copy_in(site, transfer, cut, target, reached),
            // The bytes are on their way all the same.
            |worker, cut| worker.discard(transfer, cut),
        )
    }

    /// As [`Worker::start_copy_in`], with bytes that the client sends when it is asked to.
    pub(super) fn start_copy_in_late(
        &mut self,
        stream: StreamId,
        sizes: (u64, u64, u32),
        target: impl FnOnce(&Worker) -> Result<DeviceSide, CUresult>,
    ) -> Outcome {
        let ask = self.asking(sizes.0)?;
        // To be asked twice does no harm.
        self.start_copy_in(stream, sizes, target, Some(Box::new(ask.clone())))
            .inspect_err(|_| ask())
    }

    /// As [`Worker::start_copy_in_late`], but staging memory is taken when the stream has come to
    /// the copy, too.
    pub(super) fn start_copy_in_queued(
        &mut self,
        stream: StreamId,
        sizes: (u64, u64, u32),
        target: impl FnOnce(&Worker) -> Result<DeviceSide, CUresult>,
    ) -> Outcome {
        let transfer = sizes.0;
        let ask = self.asking(transfer)?;
        let asks = Box::new(ask.clone());
        self.start_bulk(
            (stream, sizes),
            target,
            |site, cut, target| staging::copy_in_queued(site, transfer, cut, target, asks),
            |worker, cut| {
                worker.discard(transfer, cut);
                ask();
            },
        )
    }

    /// The function that requests the bytes of a transfer from the client.
    fn asking(&self, transfer: u64) -> Result<impl Fn() + Clone + Send + use<>, CUresult> {
        let reporter = self.client.reporter().cloned().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        let ctx = self.contexts.here();
        Ok(move || {
            // What the device copied to the same memory before is sent after it has come.
            reporter.report_copies();
            let _ = reporter.replier().order(SEND, ctx, &transfer.to_le_bytes());
        })
    }

    /// Starts a large copy to the host.
    pub(super) fn start_copy_out_bulk(
        &mut self,
        stream: StreamId,
        sizes: (u64, u64, u32),
        target: impl FnOnce(&Worker) -> Result<DeviceSide, CUresult>,
    ) -> Outcome {
        let transfer = sizes.0;
        let out = self.start_bulk(
            (stream, sizes),
            |worker| {
                // A program that only copies never waits for anything else: what is to be told of
                // would pile up.
                worker.client.report_copies();
                target(worker)
            },
            |site, cut, target| staging::copy_out(site, transfer, cut, target),
            |worker, _| worker.cancel(transfer),
        )?;
        self.client.expect(transfer, &out);
        Ok(())
    }

    /// Starts a large copy of a transfer: its number, its bytes and those of a chunk. If nothing
    /// comes of it, `end` ends it on the client's side.
    fn start_bulk<T>(
        &mut self,
        (stream, (_, bytes, chunk)): (StreamId, (u64, u64, u32)),
        target: impl FnOnce(&Worker) -> Result<DeviceSide, CUresult>,
        start: impl FnOnce(&staging::CopySite<'_>, Cut, &DeviceSide) -> Result<T, Failed>,
        end: impl FnOnce(&Worker, Cut),
    ) -> Result<T, CUresult> {
        let cut = Cut::new(bytes, chunk).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let site = target(self).and_then(|target| Ok((target, self.stream(stream)?)));
        let started = site.map_err(Failed::NotStarted).and_then(|(target, stream)| {
            let registered = self.registered(&target, bytes);
            let site = self.copy_site(stream).map_err(Failed::NotStarted)?;
            let known = registered.and_then(|(range, registered)| registered.known(&site, range));
            start(&CopySite { registered: known.as_ref(), ..site }, cut, &target)
        });
        started.map_err(|failed| match failed {
            Failed::BrokeOff(error) => error,
            Failed::NotStarted(error) => {
                end(self, cut);
                error
            }
            Failed::Violation(error) => {
                self.violated(&error);
                CUresult::CUDA_ERROR_INVALID_VALUE
            }
        })
    }

    /// What an adapter knows of the allocation that a copy uses, if it is worth while and may be.
    fn registered(
        &mut self,
        side: &DeviceSide,
        bytes: u64,
    ) -> Option<((DevicePtr, u64), Registered)> {
        let DeviceSide::Linear(address) = *side else { return None };
        let bulk = self.client.replier()?.bulk();
        if bytes < UNSTAGED_FROM || !bulk.takes_devices() {
            return None;
        }
        let (range, registered) = self.memory.allocations.whole(address, bytes)?;
        Some((range, registered.clone()))
    }

    /// Starts a copy through memory that the client shares.
    fn start_staged(&mut self, m: &CopyStaged) -> Outcome {
        let cut = Cut::new(m.bytes, m.chunk).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let memory = self.client.replier().and_then(Replier::memory).cloned();
        let memory = memory.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let staged = staging::Staged { cut, at: m.at, to_device: m.to_device };
        let stream = self.stream(m.stream);
        let target = stream.and_then(|_| self.target(m.device, m.extent, m.from, m.bytes));
        let (ctx, shared) = (self.contexts.here(), self.copies.shared());
        let site = self.copy_site(stream.unwrap_or(core::ptr::null_mut()))?;
        staging::copy_staged(&site, &shared, &memory, ctx, &staged, target)?;
        let direction = if m.to_device { Direction::In } else { Direction::Out };
        meter::page().moved(direction, Way::Shared, m.bytes);
        Ok(())
    }

    /// Throws away the bytes of a copy to the device that cannot be done.
    pub(super) fn discard(&self, transfer: u64, cut: Cut) {
        if let Some(replier) = self.client.replier()
            && let Err(error) = replier.bulk().discard(transfer, cut)
        {
            self.violated(&error);
        }
    }

    /// Tells the client that a copy to the host brings nothing.
    pub(super) fn cancel(&self, transfer: u64) {
        if let Some(replier) = self.client.replier() {
            replier.bulk().cancel(transfer, 0);
        }
    }

    /// Starts a small copy to the host, into a buffer that the answer is made from.
    fn start_copy_out(
        &mut self,
        message: &CopyOut,
    ) -> Result<(Slot, Handle<outboard_abi::CUstream_st>), CUresult> {
        self.streams.waits.check_room()?;
        let stream = self.stream(message.stream)?;
        if message.bytes as usize > Slots::BYTES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.memory.allocations.check(message.src, u64::from(message.bytes))?;
        let slot = self.copies.slot(self.table, self.contexts.here())?;
        call!(
            self.table,
            cuMemcpyDtoHAsync_v2(
                slot.pointer().cast(),
                message.src.0,
                message.bytes as usize,
                stream
            )
        )?;
        Ok((slot, Handle::new(stream)))
    }

    /// Queues a copy of bytes that follow each other, between memory of the device and of this
    /// process: in parts, as the driver copies only what it knows as one.
    fn copy_row(&self, stream: CUstream, to: UnifiedPtr, from: UnifiedPtr, bytes: u64) -> Outcome {
        let side = |at: UnifiedPtr| {
            let known = self.memory.mapped.registered_from(at.0);
            (known.is_some(), known.unwrap_or(u64::MAX))
        };
        let mut done = 0;
        while done < bytes {
            let (to, from) = (to.offset(done), from.offset(done));
            let ((to_host, room), (from_host, there)) = (side(to), side(from));
            let part = (bytes - done).min(room).min(there);
            let len = part as usize;
            match (to_host, from_host) {
                (false, false) => {
                    call!(self.table, cuMemcpyDtoDAsync_v2(to.0, from.0, len, stream))
                }
                (false, true) => {
                    call!(
                        self.table,
                        cuMemcpyHtoDAsync_v2(to.0, from.host().pointer(), len, stream)
                    )
                }
                (true, false) => {
                    call!(
                        self.table,
                        cuMemcpyDtoHAsync_v2(to.host().pointer(), from.0, len, stream)
                    )
                }
                (true, true) => call!(self.table, cuMemcpyAsync(to.0, from.0, len, stream)),
            }?;
            done += part;
        }
        Ok(())
    }

    /// Queues a copy of rows, all of which the driver knows as one on either side.
    fn copy_rows(&self, stream: CUstream, m: &CopyOnDevice) -> Outcome {
        let kind = |at: UnifiedPtr| {
            if self.memory.mapped.has(at.0) {
                CUmemorytype::CU_MEMORYTYPE_HOST
            } else {
                CUmemorytype::CU_MEMORYTYPE_DEVICE
            }
        };
        let copy = outboard_abi::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: kind(m.src),
            srcHost: m.src.host().pointer(),
            srcDevice: m.src.0,
            srcArray: core::ptr::null_mut(),
            srcPitch: m.src_pitch as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: kind(m.dst),
            dstHost: m.dst.host().pointer(),
            dstDevice: m.dst.0,
            dstArray: core::ptr::null_mut(),
            dstPitch: m.dst_pitch as usize,
            WidthInBytes: m.width as usize,
            Height: m.height as usize,
        };
        call!(self.table, cuMemcpy2DAsync_v2(&raw const copy, stream))
    }
}

impl CopyCommands for Worker {
    fn copy_in(&mut self, message: CopyIn<'_>) -> Outcome {
        let stream = self.stream(message.stream)?;
        self.memory.allocations.check(message.dst, message.data.len() as u64)?;
        // Pageable and small: the driver takes the bytes along before it returns.
        call!(
            self.table,
            cuMemcpyHtoDAsync_v2(
                message.dst.0,
                message.data.as_ptr().cast(),
                message.data.len(),
                stream
            )
        )
    }

    fn copy_in_bulk(&mut self, m: CopyInBulk) -> Outcome {
        let target = |worker: &Worker| {
            worker.memory.allocations.check(m.dst, m.bytes).map(|()| DeviceSide::Linear(m.dst))
        };
        self.start_copy_in(m.stream, (m.transfer, m.bytes, m.chunk), target, None)
    }

    fn copy_in_late(&mut self, m: CopyInLate) -> Outcome {
        let target = |worker: &Worker| {
            worker.memory.allocations.check(m.dst, m.bytes).map(|()| DeviceSide::Linear(m.dst))
        };
        self.start_copy_in_late(m.stream, (m.transfer, m.bytes, m.chunk), target)
    }

    fn copy_out(&mut self, message: CopyOut, answer: Answer<CopyOut>) {
        let bytes = message.bytes as usize;
        match self.start_copy_out(&message) {
            Ok((slot, stream)) => {
                self.wait(Wait::Stream(stream), answer, move |answer, outcome| {
                    // SAFETY: the wait is for the stream as it was behind the copy.
                    let reply = |()| CopyOutReply { data: unsafe { slot.bytes(bytes) } };
                    answer.result(outcome.map(reply));
                });
            }
            Err(error) => answer.error(error),
        }
    }

    fn copy_out_bulk(&mut self, m: CopyOutBulk) -> Outcome {
        let target = |worker: &Worker| {
            worker.memory.allocations.check(m.src, m.bytes).map(|()| DeviceSide::Linear(m.src))
        };
        self.start_copy_out_bulk(m.stream, (m.transfer, m.bytes, m.chunk), target)
    }

    fn copy_on_device(&mut self, m: CopyOnDevice) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.memory.allocations.check_rows(m.dst.device(), m.width, m.height, m.dst_pitch)?;
        self.memory.allocations.check_rows(m.src.device(), m.width, m.height, m.src_pitch)?;
        let (to_host, from_host) =
            (self.memory.mapped.has(m.dst.0), self.memory.mapped.has(m.src.0));
        if to_host != from_host {
            let direction = if from_host { Direction::In } else { Direction::Out };
            meter::page().moved(direction, Way::Mapped, m.width.saturating_mul(m.height));
        }
        // The driver copies from and to memory that it knows as one.
        let is_one = |at: UnifiedPtr, pitch: u64| {
            let above = pitch.saturating_mul(m.height.saturating_sub(1));
            let known = self.memory.mapped.registered_from(at.0);
            known.is_none_or(|known| above.saturating_add(m.width) <= known)
        };
        if m.height != 1 && is_one(m.dst, m.dst_pitch) && is_one(m.src, m.src_pitch) {
            return self.copy_rows(stream, &m);
        }
        if m.height > 1 && m.dst_pitch.min(m.src_pitch) < m.width {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        for row in 0..m.height {
            let (dst, src) = (m.dst.offset(row * m.dst_pitch), m.src.offset(row * m.src_pitch));
            self.copy_row(stream, dst, src, m.width)?;
        }
        Ok(())
    }

    fn fill(&mut self, m: Fill) -> Outcome {
        let stream = self.stream(m.stream)?;
        let row =
            m.width.checked_mul(u64::from(m.element)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.memory.allocations.check_rows(m.dst, row, m.height, m.pitch)?;
        let (pitch, width, height) = (m.pitch as usize, m.width as usize, m.height as usize);
        match (m.element, m.height) {
            (1, 1) => call!(self.table, cuMemsetD8Async(m.dst.0, m.value as u8, width, stream)),
            (2, 1) => call!(self.table, cuMemsetD16Async(m.dst.0, m.value as u16, width, stream)),
            (4, 1) => call!(self.table, cuMemsetD32Async(m.dst.0, m.value, width, stream)),
            (1, _) => call!(
                self.table,
                cuMemsetD2D8Async(m.dst.0, pitch, m.value as u8, width, height, stream)
            ),
            (2, _) => call!(
                self.table,
                cuMemsetD2D16Async(m.dst.0, pitch, m.value as u16, width, height, stream)
            ),
            (4, _) => call!(
                self.table,
                cuMemsetD2D32Async(m.dst.0, pitch, m.value, width, height, stream)
            ),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn copy_staged(&mut self, m: CopyStaged) -> Outcome {
        self.start_staged(&m)
    }

    fn copy_box(&mut self, m: CopyBox) -> Outcome {
        self.copy_box_on_device(&m)
    }

    fn copy_box_in(&mut self, m: CopyBoxIn<'_>) -> Outcome {
        self.copy_small_box_in(&m)
    }

    fn copy_box_in_bulk(&mut self, m: CopyBoxInBulk) -> Outcome {
        self.copy_large_box_in(&m)
    }

    fn copy_box_in_queued(&mut self, m: CopyBoxInQueued) -> Outcome {
        self.copy_queued_box_in(&m)
    }

    fn copy_box_out(&mut self, m: CopyBoxOut, answer: Answer<CopyBoxOut>) {
        self.copy_small_box_out(&m, answer);
    }

    fn copy_box_out_bulk(&mut self, m: CopyBoxOutBulk) -> Outcome {
        self.copy_large_box_out(&m)
    }
}
