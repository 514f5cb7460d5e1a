//! Memory and events shared among sessions.

use core::ffi::{c_char, c_int, c_void};
use outboard_wire::device_id::DeviceId;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use outboard_abi::{
    CUipcEventHandle, CUipcMemHandle, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUresult,
};
use outboard_driver::call;
use outboard_wire::messages::*;
use outboard_wire::{DevicePtr, ObjectId};

use crate::answer::{Answer, Outcome};
use crate::budget::{Charge, What};
use crate::generated::dispatch::IpcCommands;
use crate::opened::Place;
use crate::shares::{self, Kind, Thing, Token, number, read, token};
use crate::worker::Worker;
use outboard_control::messages::{
    SharedBlock, SharedEvent, SharedMemory, SharedPhysical, SharedPool, SharedPooled,
};

const DESCRIPTOR: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn bytes(chars: [c_char; 64]) -> [u8; 64] {
    chars.map(|byte| byte as u8)
}

fn chars(bytes: [u8; 64]) -> [c_char; 64] {
    bytes.map(|byte| byte as c_char)
}

/// A descriptor that the driver has made.
fn owned(fd: c_int) -> Result<OwnedFd, CUresult> {
    if fd < 0 {
        return Err(CUresult::CUDA_ERROR_UNKNOWN);
    }
    // SAFETY: the driver has just opened it for its caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Worker {
    fn share_memory_at(&mut self, m: &ShareMemory) -> Result<Token, CUresult> {
        self.enter()?;
        self.memory.allocations.check(m.address, m.bytes)?;
        if let Some(known) = self.memory.shared.get(Thing::Memory(m.address)) {
            return Ok(token(known));
        }
        let token = match self
            .memory
            .arena
            .block_of(m.address, m.bytes)
            .filter(|_| !self.memory.arena.is_told())
        {
            Some(block) => self.share_in_block(block, m),
            None => {
                let mut handle = CUipcMemHandle { reserved: [0; 64] };
                call!(self.table, cuIpcGetMemHandle(&raw mut handle, m.address.0))?;
                let handle = bytes(handle.reserved);
                let file = self.handle_files.file_of(&handle)?;
                self.memory.shared.share(
                    self.client.registry(),
                    Thing::Memory(m.address),
                    &SharedMemory { handle, bytes: m.bytes },
                    file.as_ref().map(AsFd::as_fd),
                )
            }
        }?;
        self.memory.arena.shared(m.address);
        Ok(token)
    }

    /// Shares an allocation in a block. The driver has no handle for such memory, but a descriptor
    /// of all of the block.
    fn share_in_block(
        &mut self,
        (base, block): (DevicePtr, u64),
        m: &ShareMemory,
    ) -> Result<Token, CUresult> {
        let device = self.device_here()?;
        let mut handle = 0;
        call!(self.table, cuMemRetainAllocationHandle(&raw mut handle, base.0 as *mut c_void))?;
        let mut fd: c_int = -1;
        let exported = call!(
            self.table,
            cuMemExportToShareableHandle((&raw mut fd).cast(), handle, DESCRIPTOR, 0)
        );
        let _ = call!(self.table, cuMemRelease(handle));
        exported?;
        let fd = owned(fd)?;
        let shared = SharedBlock { bytes: m.bytes, offset: m.address.since(base), block, device };
        self.memory.shared.share(
            self.client.registry(),
            Thing::Memory(m.address),
            &shared,
            Some(fd.as_fd()),
        )
    }

    fn open_memory_of(&mut self, m: &OpenMemory) -> Result<OpenMemoryReply, CUresult> {
        self.enter()?;
        self.memory.opened.check_room()?;
        if self.memory.shared.is_named(m.token) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        let (payload, descriptor) =
            shares::find_payload(self.client.registry(), Kind::Memory, m.token)?;
        let (token, ctx) = (number(m.token), self.contexts.here());
        // However often it is opened, it is there once.
        if let Some(address) = self.memory.opened.open_again(token, ctx) {
            let bytes = self.memory.allocations.bytes_at(address)?;
            return Ok(OpenMemoryReply { address, bytes });
        }
        let device = self.device_here()?;
        let (address, bytes, place, charge) = match descriptor {
            Some(block) if !self.handle_files.travel() => {
                self.open_block(&payload, &block, device)?
            }
            file => {
                let SharedMemory { handle, bytes } = read(&payload)?;
                self.handle_files.give(&handle, file.as_ref())?;
                let (address, charge) = self.hold(device, bytes, |worker| {
                    let mut address = 0;
                    let handle = CUipcMemHandle { reserved: chars(handle) };
                    // Peers are enabled as they are needed: the only flag there is, and one that
                    // must be given.
                    call!(
                        worker.table,
                        cuIpcOpenMemHandle_v2(&raw mut address, handle, m.flags & 1)
                    )?;
                    Ok(DevicePtr(address))
                })?;
                (address, bytes, Place::Driver(address), charge)
            }
        };
        self.memory.opened.add(address, (token, ctx), place);
        self.memory.add(self.contexts.here(), address, bytes, charge);
        Ok(OpenMemoryReply { address, bytes })
    }

    /// Maps the block of another session's allocation.
    fn open_block(
        &mut self,
        payload: &[u8],
        descriptor: &OwnedFd,
        here: u32,
    ) -> Result<(DevicePtr, u64, Place, Charge), CUresult> {
        let SharedBlock { bytes, offset, block, device } = read(payload)?;
        if offset > block || bytes > block - offset {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let devices: Vec<u32> = if device == here { vec![here] } else { vec![here, device] };
        let (place, charge) = self.hold(here, bytes, |worker| {
            let mut handle = 0;
            let given = descriptor.as_raw_fd() as usize as *mut c_void;
            call!(
                worker.table,
                cuMemImportFromShareableHandle(&raw mut handle, given, DESCRIPTOR)
            )?;
            let place = Place::map(worker.table, handle, block, &devices);
            let _ = call!(worker.table, cuMemRelease(handle));
            place
        })?;
        let Place::Block(base, _) = place else { return Err(CUresult::CUDA_ERROR_UNKNOWN) };
        Ok((base.offset(offset), bytes, place, charge))
    }

    fn share_event_named(&mut self, name: ObjectId) -> Result<Token, CUresult> {
        self.enter()?;
        let event = self.streams.event(name)?;
        if let Some(known) = self.memory.shared.get(Thing::Event(name)) {
            return Ok(token(known));
        }
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        call!(self.table, cuIpcGetEventHandle(&raw mut handle, event))?;
        let handle = bytes(handle.reserved);
        let file = self.handle_files.file_of(&handle)?;
        self.memory.shared.share(
            self.client.registry(),
            Thing::Event(name),
            &SharedEvent { handle },
            file.as_ref().map(AsFd::as_fd),
        )
    }

    fn open_event_of(&mut self, m: &OpenEvent) -> Outcome {
        self.enter()?;
        self.streams.check_new_event(m.event)?;
        let (SharedEvent { handle }, file) =
            shares::find_shared(self.client.registry(), Kind::Event, m.token)?;
        self.handle_files.give(&handle, file.as_ref())?;
        let handle = CUipcEventHandle { reserved: chars(handle) };
        let mut event = core::ptr::null_mut();
        call!(self.table, cuIpcOpenEventHandle(&raw mut event, handle))?;
        self.streams.add_event(self.contexts.here(), m.event, event);
        Ok(())
    }

    fn export_physical_named(&mut self, name: ObjectId) -> Result<Token, CUresult> {
        let handle = self.memory.space.memory(name)?;
        let (bytes, kind) = self.memory.space.created(name)?;
        // However often it is exported, there is one descriptor.
        if let Some(known) = self.memory.shared.give_again(Thing::Physical(name)) {
            return Ok(token(known));
        }
        let mut fd: c_int = -1;
        call!(
            self.table,
            cuMemExportToShareableHandle((&raw mut fd).cast(), handle, DESCRIPTOR, 0)
        )?;
        let fd = owned(fd)?;
        let charge = self.memory.space.charge(name);
        self.memory.shared.share_descriptor(
            self.client.registry(),
            Thing::Physical(name),
            &SharedPhysical { bytes, kind },
            fd.as_fd(),
            charge,
        )
    }

    fn import_physical_of(&mut self, m: &ImportPhysical) -> Result<ImportPhysicalReply, CUresult> {
        self.memory.space.check_new(m.memory)?;
        let (SharedPhysical { bytes, kind }, fd) =
            shares::find_shared(self.client.registry(), Kind::Physical, m.token)?;
        let fd = fd.ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        let [device, handle_types, compression, usage] = kind;
        self.location(DeviceId::new(device))?;
        // It counts for both: it is there until both have let go of it.
        let held = self.hold(device, bytes, |worker| {
            let mut handle = 0;
            let given = fd.as_raw_fd() as usize as *mut c_void;
            call!(
                worker.table,
                cuMemImportFromShareableHandle(&raw mut handle, given, DESCRIPTOR)
            )?;
            Ok(handle)
        })?;
        self.memory.space.add_memory(m.memory, held, bytes, kind);
        Ok(ImportPhysicalReply {
            bytes,
            device: DeviceId::new(device),
            handle_types,
            compression,
            usage,
        })
    }

    fn export_pool_named(&mut self, name: ObjectId) -> Result<Token, CUresult> {
        let (pool, device) = self.memory.pools.get(name)?;
        if let Some(known) = self.memory.shared.give_again(Thing::Pool(name)) {
            return Ok(token(known));
        }
        let mut fd: c_int = -1;
        call!(
            self.table,
            cuMemPoolExportToShareableHandle((&raw mut fd).cast(), pool.get(), DESCRIPTOR, 0)
        )?;
        let fd = owned(fd)?;
        self.memory.shared.share_descriptor(
            self.client.registry(),
            Thing::Pool(name),
            &SharedPool { device },
            fd.as_fd(),
            None,
        )
    }

    fn import_pool_of(&mut self, m: &ImportPool) -> Result<ImportPoolReply, CUresult> {
        self.memory.pools.check_new(m.pool)?;
        let (SharedPool { device }, fd) =
            shares::find_shared(self.client.registry(), Kind::Pool, m.token)?;
        let fd = fd.ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        self.location(DeviceId::new(device))?;
        let mut pool = core::ptr::null_mut();
        let given = fd.as_raw_fd() as usize as *mut c_void;
        call!(self.table, cuMemPoolImportFromShareableHandle(&raw mut pool, given, DESCRIPTOR, 0))?;
        self.memory.pools.add(m.pool, pool, device);
        Ok(ImportPoolReply { device: DeviceId::new(device) })
    }

    fn share_pooled_at(&mut self, m: &SharePooled) -> Result<Token, CUresult> {
        self.memory.allocations.check(m.address, m.bytes)?;
        if let Some(known) = self.memory.shared.get(Thing::Pooled(m.address)) {
            return Ok(token(known));
        }
        let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
        call!(self.table, cuMemPoolExportPointer(&raw mut data, m.address.0))?;
        let file = self.handle_files.file_of(&data.reserved)?;
        self.memory.shared.share(
            self.client.registry(),
            Thing::Pooled(m.address),
            &SharedPooled { data: data.reserved, bytes: m.bytes },
            file.as_ref().map(AsFd::as_fd),
        )
    }

    fn open_pooled_of(&mut self, m: &OpenPooled) -> Result<OpenPooledReply, CUresult> {
        self.enter()?;
        let (pool, device) = self.memory.pools.get(m.pool)?;
        let (SharedPooled { data: reserved, bytes }, file) =
            shares::find_shared(self.client.registry(), Kind::Pooled, m.token)?;
        self.handle_files.give(&reserved, file.as_ref())?;
        let (address, charge) = self.hold(device, bytes, |worker| {
            let (mut address, mut data) = (0, CUmemPoolPtrExportData { reserved });
            call!(
                worker.table,
                cuMemPoolImportPointer(&raw mut address, pool.get(), &raw mut data)
            )?;
            Ok(DevicePtr(address))
        })?;
        self.memory.add(self.contexts.here(), address, bytes, charge);
        Ok(OpenPooledReply { address, bytes })
    }
}

impl IpcCommands for Worker {
    fn share_memory(&mut self, m: ShareMemory, answer: Answer<ShareMemory>) {
        let outcome = self.share_memory_at(&m);
        answer.result(outcome.map(|token| ShareMemoryReply { token }));
    }

    fn open_memory(&mut self, m: OpenMemory, answer: Answer<OpenMemory>) {
        let outcome = self.open_memory_of(&m);
        answer.result(outcome);
    }

    fn close_memory(&mut self, m: CloseMemory, answer: Answer<CloseMemory>) {
        let context = match self.enter() {
            Ok(context) => context,
            Err(error) => return answer.error(error),
        };
        let last = match self.memory.opened.close(m.address) {
            Ok(last) => last,
            Err(error) => return answer.error(error),
        };
        if last.is_some() {
            let _ = self.memory.allocations.remove(m.address);
        }
        let charge = last
            .and_then(|_| self.memory.budget.release(self.contexts.here(), What::At(m.address)));
        self.on_helper(
            context,
            answer,
            move |table| {
                let outcome = last.map_or(Ok(()), |place| place.close(table));
                drop(charge);
                outcome
            },
            |answer, outcome| answer.result(outcome.map(|()| CloseMemoryReply {})),
        );
    }

    fn share_event(&mut self, m: ShareEvent, answer: Answer<ShareEvent>) {
        let outcome = self.share_event_named(m.event);
        answer.result(outcome.map(|token| ShareEventReply { token }));
    }

    fn open_event(&mut self, m: OpenEvent, answer: Answer<OpenEvent>) {
        let outcome = self.open_event_of(&m);
        answer.result(outcome.map(|()| OpenEventReply {}));
    }

    fn export_physical(&mut self, m: ExportPhysical, answer: Answer<ExportPhysical>) {
        let outcome = self.export_physical_named(m.memory);
        answer.result(outcome.map(|token| ExportPhysicalReply { token }));
    }

    fn import_physical(&mut self, m: ImportPhysical, answer: Answer<ImportPhysical>) {
        let outcome = self.import_physical_of(&m);
        answer.result(outcome);
    }

    fn export_pool(&mut self, m: ExportPool, answer: Answer<ExportPool>) {
        let outcome = self.export_pool_named(m.pool);
        answer.result(outcome.map(|token| ExportPoolReply { token }));
    }

    fn import_pool(&mut self, m: ImportPool, answer: Answer<ImportPool>) {
        let outcome = self.import_pool_of(&m);
        answer.result(outcome);
    }

    fn share_pooled(&mut self, m: SharePooled, answer: Answer<SharePooled>) {
        let outcome = self.share_pooled_at(&m);
        answer.result(outcome.map(|token| SharePooledReply { token }));
    }

    fn open_pooled(&mut self, m: OpenPooled, answer: Answer<OpenPooled>) {
        let outcome = self.open_pooled_of(&m);
        answer.result(outcome);
    }

    fn unshare(&mut self, m: Unshare) -> Outcome {
        self.memory.shared.drop_token(self.client.registry(), m.token);
        Ok(())
    }
}
