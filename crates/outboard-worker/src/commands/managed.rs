//! Memory that the client's program and the device both use.

use std::os::fd::AsFd;

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_wire::messages::*;
use outboard_wire::{DevicePtr, ObjectId, StreamId, UnifiedPtr};

use super::{Handle, Wait};
use crate::answer::{Answer, Outcome};
use crate::contexts::Context;
use crate::generated::dispatch::ManagedCommands;
use crate::mapped::{self, Mapped};
use crate::worker::Worker;

/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;
/// Most bytes of a single answer.
const MOST_READ: usize = 1 << 20;

impl Worker {
    /// Memory for the client's managed memory, of the device or of the driver's to move.
    fn alloc_managed(&mut self, bytes: u64, moves: bool) -> Result<UnifiedPtr, CUresult> {
        let device = self.device_here()?;
        let (address, charge) = self.hold(device, bytes, |worker| {
            let (mut address, bytes) = (0, bytes as usize);
            match moves {
                true => {
                    call!(worker.table, cuMemAllocManaged(&raw mut address, bytes, ATTACH_GLOBAL))
                }
                false => call!(worker.table, cuMemAlloc_v2(&raw mut address, bytes)),
            }?;
            Ok(DevicePtr(address))
        })?;
        self.memory.add(self.contexts.here(), address, bytes, charge);
        Ok(address.unified())
    }

    fn open_mapped(&mut self, m: &MappedOpen) -> Result<(), CUresult> {
        self.enter()?;
        let more = self.memory.mapped.more(m.address.0, m.bytes)?;
        let mut pinned = self.hold_pinned(more)?;
        // Some of the pages may have been unused ones, which were given back for this.
        let now = self.memory.mapped.more(m.address.0, m.bytes)?;
        if now != more {
            drop(pinned);
            pinned = self.hold_pinned(now)?;
        }
        self.memory.mapped.open(
            self.table,
            self.contexts.here(),
            (m.address.0, m.bytes),
            pinned,
        )?;
        self.memory.allocations.insert(m.address.device(), m.bytes, self.contexts.here());
        Ok(())
    }

    fn share_mapped(&mut self, m: &MappedShare) -> Result<(), CUresult> {
        self.enter()?;
        let memory = self.client.replier().and_then(|replier| replier.memory().cloned());
        let memory = memory.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        self.memory.mapped.share(
            self.table,
            self.contexts.here(),
            (m.address.0, m.bytes),
            &memory,
            m.offset,
        )?;
        self.memory.allocations.insert(m.address.device(), m.bytes, self.contexts.here());
        Ok(())
    }

    fn map_file(&mut self, m: &MappedFile) -> Result<(), CUresult> {
        // Whatever else becomes of the command, the file does not stay for the next one.
        let file = self.client.replier().and_then(|replier| replier.take_file(m.number).ok());
        self.enter()?;
        let file = file.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        self.memory.mapped.share_file(
            self.table,
            self.contexts.here(),
            (m.address.0, m.bytes),
            file.as_fd(),
            m.offset,
        )?;
        self.memory.allocations.insert(m.address.device(), m.bytes, self.contexts.here());
        Ok(())
    }

    fn close_mapped(&mut self, address: UnifiedPtr, bytes: u64) -> Result<Context, CUresult> {
        let context = self.enter()?;
        self.memory.mapped.close(address.0, bytes)?;
        self.memory.allocations.remove(address.device())?;
        Ok(context)
    }

    /// The object of a client's wait.
    fn awaited(&mut self, what: u8, name: u64) -> Result<Wait, CUresult> {
        match what {
            0 => Ok(Wait::Context),
            1 => self.stream_so_far(StreamId(name)).map(|stream| Wait::Stream(Handle::new(stream))),
            2 => self
                .enter()
                .and_then(|_| self.streams.event(ObjectId(name)))
                .map(|event| Wait::Event(Handle::new(event))),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Waits, or asks, and then answers with what memory holds.
    fn wait_with_memory<M: Call + 'static>(
        &mut self,
        (what, name, ask): (u8, u64, bool),
        answer: Answer<M>,
        reply: impl FnOnce(Answer<M>, Option<&Mapped>) + Send + 'static,
    ) {
        let wait = match self.awaited(what, name) {
            Ok(wait) => wait,
            Err(error) => return answer.error(error),
        };
        let finish =
            move |answer: Answer<M>, outcome: Outcome, mapped: Option<&Mapped>| match outcome {
                Ok(()) => reply(answer, mapped),
                Err(error) => answer.error(error),
            };
        if !ask {
            return self.wait_and_read(wait, answer, finish);
        }
        let outcome = wait.query(self.table);
        self.client.report_copies();
        finish(answer, outcome, Some(&self.memory.mapped));
    }
}

/// What memory holds now, in several places; nothing if any cannot be had.
fn read_all(mapped: Option<&Mapped>, places: &[(UnifiedPtr, u32)]) -> Vec<u8> {
    mapped.and_then(|mapped| mapped.read_all(places, MOST_READ).ok()).unwrap_or_default()
}

impl ManagedCommands for Worker {
    fn managed_alloc(&mut self, m: ManagedAlloc, answer: Answer<ManagedAlloc>) {
        // Nobody on this machine touches it but the device, whose own memory does best; the driver
        // knows how several devices share it.
        let outcome = self.alloc_managed(m.bytes, self.offered.has_several());
        answer.result(outcome.map(|address| ManagedAllocReply { address }));
    }

    fn managed_alloc_beyond(&mut self, m: ManagedAllocBeyond, answer: Answer<ManagedAllocBeyond>) {
        let outcome = self.alloc_managed(m.bytes, true);
        answer.result(outcome.map(|address| ManagedAllocBeyondReply { address }));
    }

    fn mapped_open(&mut self, m: MappedOpen, answer: Answer<MappedOpen>) {
        let outcome = self.open_mapped(&m);
        answer.result(outcome.map(|()| MappedOpenReply {}));
    }

    fn mapped_share(&mut self, m: MappedShare, answer: Answer<MappedShare>) {
        let outcome = self.share_mapped(&m);
        answer.result(outcome.map(|()| MappedShareReply {}));
    }

    fn mapped_file(&mut self, m: MappedFile, answer: Answer<MappedFile>) {
        let outcome = self.map_file(&m);
        answer.result(outcome.map(|()| MappedFileReply {}));
    }

    fn mapped_close(&mut self, m: MappedClose, answer: Answer<MappedClose>) {
        match self.close_mapped(m.address, m.bytes) {
            Ok(context) => {
                let unused = self.memory.mapped.take_unused();
                self.on_helper(
                    context,
                    answer,
                    move |table| {
                        // A fault in the context is no reason to keep the memory.
                        let _ = call!(table, cuCtxSynchronize());
                        mapped::unmap(table, &unused);
                        Ok(())
                    },
                    |answer, outcome: Result<(), CUresult>| {
                        answer.result(outcome.map(|()| MappedCloseReply {}))
                    },
                );
            }
            Err(error) => answer.error(error),
        }
    }

    fn mapped_close_idle(&mut self, m: MappedCloseIdle) -> Outcome {
        self.close_mapped(m.address, m.bytes)?;
        // If another thread of the client has queued work meanwhile, the pages are kept until
        // memory is closed again.
        if self.streams.waits.is_quiet(self.table, self.contexts.here()) {
            mapped::unmap(self.table, &self.memory.mapped.take_unused());
        }
        Ok(())
    }

    fn mapped_write(&mut self, m: MappedWrite<'_>) -> Outcome {
        self.memory.mapped.write(m.address.0, m.mask, m.data)
    }

    fn mapped_read(&mut self, m: MappedRead, answer: Answer<MappedRead>) {
        let bytes = m.bytes as usize;
        let outcome = if bytes > MOST_READ {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        } else {
            self.memory.mapped.read(m.address.0, bytes)
        };
        match outcome {
            Ok(data) => answer.ok(&MappedReadReply { data: &data }),
            Err(error) => answer.error(error),
        }
    }

    fn mapped_read_changed(&mut self, m: MappedReadChanged, answer: Answer<MappedReadChanged>) {
        let (address, bytes) = (m.address.0, m.bytes as usize);
        let outcome = if bytes > MOST_READ {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        } else {
            self.memory.mapped.sum(address, bytes, m.seed).and_then(|now| match now == m.sum {
                true => Ok(Vec::new()),
                false => self.memory.mapped.read(address, bytes),
            })
        };
        match outcome {
            Ok(data) => answer.ok(&MappedReadChangedReply { data: &data }),
            Err(error) => answer.error(error),
        }
    }

    fn wait_reading(&mut self, m: WaitReading, answer: Answer<WaitReading>) {
        self.wait_with_memory((m.what, m.name, m.ask), answer, move |answer, mapped| {
            answer.ok(&WaitReadingReply { data: &read_all(mapped, &m.places) });
        });
    }

    fn wait_comparing(&mut self, m: WaitComparing, answer: Answer<WaitComparing>) {
        self.wait_with_memory((m.what, m.name, m.ask), answer, move |answer, mapped| {
            let same =
                mapped.and_then(|mapped| mapped.compare(m.seed, &m.known).ok()).unwrap_or_default();
            answer.ok(&WaitComparingReply { data: &read_all(mapped, &m.places), same });
        });
    }
}
