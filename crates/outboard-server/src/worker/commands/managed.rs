//! Memory that the client's program and the device both use.

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_wire::messages::*;
use outboard_wire::{DevicePtr, ObjectId, StreamId, UnifiedPtr};

use super::{Handle, Wait, Worker};
use crate::generated::dispatch::ManagedCommands;
use crate::worker::answer::{Answer, Outcome};
use crate::worker::budget::What;
use crate::worker::mapped::{self, Mapped};
use crate::worker::objects::Context;

/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;
/// Most bytes of a single answer.
const MOST_READ: usize = 1 << 20;

impl Worker {
    fn alloc_managed(&mut self, bytes: u64) -> Result<UnifiedPtr, CUresult> {
        let device = self.device_here()?;
        let several = self.platform.devices.len() > 1;
        let (address, charge) = self.hold(device, bytes, |worker| {
            let mut address = 0;
            if several {
                // The driver knows how several devices share it.
                call!(worker.table, cuMemAllocManaged(&raw mut address, bytes as usize, ATTACH_GLOBAL))?;
            } else {
                // Nobody on this machine touches it but the device, whose own memory does best.
                call!(worker.table, cuMemAlloc_v2(&raw mut address, bytes as usize))?;
            }
            Ok(DevicePtr(address))
        })?;
        self.budget.keep(self.ctx, What::At(address), charge);
        self.allocations.insert(address, bytes, self.ctx);
        Ok(address.unified())
    }

    fn open_mapped(&mut self, m: &MappedOpen) -> Result<(), CUresult> {
        self.enter()?;
        let more = self.mapped.more(m.address.0, m.bytes)?;
        let pinned = self.hold_pinned(more)?;
        self.mapped.open(self.table, self.ctx, (m.address.0, m.bytes), pinned)?;
        self.allocations.insert(m.address.device(), m.bytes, self.ctx);
        Ok(())
    }

    fn share_mapped(&mut self, m: &MappedShare) -> Result<(), CUresult> {
        self.enter()?;
        let memory = self.replier.as_ref().and_then(|replier| replier.memory().cloned());
        let memory = memory.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        self.mapped.share(self.table, self.ctx, (m.address.0, m.bytes), &memory, m.offset)?;
        self.allocations.insert(m.address.device(), m.bytes, self.ctx);
        Ok(())
    }

    fn close_mapped(&mut self, address: UnifiedPtr, bytes: u64) -> Result<Context, CUresult> {
        let context = self.enter()?;
        self.mapped.close(address.0, bytes)?;
        self.allocations.remove(address.device())?;
        Ok(context)
    }

    /// What a client waits for.
    fn awaited(&mut self, m: &WaitReading) -> Result<Wait, CUresult> {
        match m.what {
            0 => Ok(Wait::Context),
            1 => self.stream_so_far(StreamId(m.name)).map(|stream| Wait::Stream(Handle::new(stream))),
            2 => self
                .enter()
                .and_then(|_| self.objects.event(ObjectId(m.name)))
                .map(|event| Wait::Event(Handle::new(event))),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Answers a wait with what memory holds now.
fn answer_reading(
    answer: Answer<WaitReading>,
    outcome: Outcome,
    mapped: Option<&Mapped>,
    places: &[(UnifiedPtr, u32)],
) {
    let read = |mapped: &Mapped| mapped.read_all(places, MOST_READ).ok();
    match outcome {
        Ok(()) => answer.ok(&WaitReadingReply { data: &mapped.and_then(read).unwrap_or_default() }),
        Err(error) => answer.error(error),
    }
}

impl ManagedCommands for Worker {
    fn managed_alloc(&mut self, m: ManagedAlloc, answer: Answer<ManagedAlloc>) {
        let outcome = self.alloc_managed(m.bytes);
        answer.result(outcome.map(|address| ManagedAllocReply { address }));
    }

    fn mapped_open(&mut self, m: MappedOpen, answer: Answer<MappedOpen>) {
        let outcome = self.open_mapped(&m);
        answer.result(outcome.map(|()| MappedOpenReply {}));
    }

    fn mapped_share(&mut self, m: MappedShare, answer: Answer<MappedShare>) {
        let outcome = self.share_mapped(&m);
        answer.result(outcome.map(|()| MappedShareReply {}));
    }

    fn mapped_close(&mut self, m: MappedClose, answer: Answer<MappedClose>) {
        match self.close_mapped(m.address, m.bytes) {
            Ok(context) => {
                let unused = self.mapped.take_unused();
                self.on_helper(
                    context,
                    answer,
                    move |table| {
                        // A fault in the context is no reason to keep the memory.
                        let _ = call!(table, cuCtxSynchronize());
                        mapped::unmap(table, &unused);
                        Ok(())
                    },
                    |answer, outcome: Result<(), CUresult>| answer.result(outcome.map(|()| MappedCloseReply {})),
                );
            }
            Err(error) => answer.error(error),
        }
    }

    fn mapped_close_idle(&mut self, m: MappedCloseIdle) -> Outcome {
        self.close_mapped(m.address, m.bytes)?;
        // If another thread of the client has queued work meanwhile, the pages are kept until memory is closed again.
        if self.waits.is_quiet(self.table, self.ctx) {
            mapped::unmap(self.table, &self.mapped.take_unused());
        }
        Ok(())
    }

    fn mapped_write(&mut self, m: MappedWrite<'_>) -> Outcome {
        self.mapped.write(m.address.0, m.mask, m.data)
    }

    fn mapped_read(&mut self, m: MappedRead, answer: Answer<MappedRead>) {
        let bytes = m.bytes as usize;
        let outcome = if bytes > MOST_READ {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        } else {
            self.mapped.read(m.address.0, bytes)
        };
        match outcome {
            Ok(data) => answer.ok(&MappedReadReply { data: &data }),
            Err(error) => answer.error(error),
        }
    }

    fn wait_reading(&mut self, m: WaitReading, answer: Answer<WaitReading>) {
        let wait = match self.awaited(&m) {
            Ok(wait) => wait,
            Err(error) => return answer.error(error),
        };
        if !m.ask {
            return self.wait_and_read(wait, answer, move |answer, outcome, mapped| {
                answer_reading(answer, outcome, mapped, &m.places);
            });
        }
        let outcome = wait.query(self.table);
        self.copies_told();
        answer_reading(answer, outcome, Some(&self.mapped), &m.places);
    }
}
