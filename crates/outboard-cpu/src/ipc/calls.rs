//! Memory and events that are shared among processes.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, DeviceId, DevicePtr, MemoryKind, ObjectId, Result, Sharing, Token,
};
use outboard_simt::Engine;
use parking_lot::Mutex;

use super::{EVENT, INVALID, MEMORY, Opened, Part, SharedEvent, page_bytes};
use crate::cpu::Cpu;
use crate::event::Event;
use crate::offers::{self, Offer};
use crate::sched::Lane;
use crate::vmm::Physical;
use crate::work::{Condition, Word, Work};

/// Offers of the devices' arenas, by their first addresses; they stay as long as the process.
static ARENAS: Mutex<BTreeMap<u64, Offer>> = Mutex::new(BTreeMap::new());

impl Cpu {
    fn share_range(&self, engine: &Engine, address: u64, bytes: u64) -> Result<Token> {
        let memory = engine.memory();
        let offset = address
            .checked_sub(memory.base())
            .filter(|_| memory.check(address, bytes))
            .ok_or(INVALID)?;
        self.share_part(engine, offset, bytes)
    }

    /// Names a part of the file of an engine.
    fn share_part(&self, engine: &Engine, offset: u64, bytes: u64) -> Result<Token> {
        let memory = engine.memory();
        let file = memory.file().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let mut arenas = ARENAS.lock();
        let offer = match arenas.get(&memory.base()) {
            Some(offer) if offer.process == u64::from(std::process::id()) => *offer,
            _ => offers::offer(file)?,
        };
        arenas.insert(memory.base(), offer);
        Ok(Part { offer, offset, bytes }.encode(MEMORY))
    }
}

/// Says that a record has been reached, whether the work does or is dropped because its context has
/// failed: others wait for it.
struct Reached(Arc<SharedEvent>, u64);

impl Drop for Reached {
    fn drop(&mut self) {
        self.0.reached(self.1);
    }
}

/// How long a thread that waits for another process sleeps between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

impl Cpu {
    pub(crate) fn record_shared(
        &'static self,
        ctx: ContextId,
        lane: Lane,
        event: &Arc<SharedEvent>,
    ) -> Result<()> {
        let mut reached = Some(Reached(event.clone(), event.next()));
        let work = Work::Call(Box::new(move || drop(reached.take())));
        self.scheduler.submit(ctx, lane, work, None).map(drop)
    }

    pub(crate) fn wait_for_shared(
        &'static self,
        ctx: ContextId,
        lane: Lane,
        event: &Arc<SharedEvent>,
    ) -> Result<()> {
        let word = Word { address: event.reached_address(), value: event.latest(), wide: true };
        self.scheduler.submit(ctx, lane, Work::Wait(word, Condition::AtLeast), None)?;
        // Behind it, so that the event stays mapped while the stream looks at it.
        let mut kept = Some(event.clone());
        self.scheduler
            .submit(ctx, lane, Work::Call(Box::new(move || drop(kept.take()))), None)
            .map(drop)
    }

    pub(crate) fn synchronize_shared(&self, ctx: ContextId, event: &SharedEvent) -> Result<()> {
        let number = event.latest();
        while !event.is_reached(number) {
            self.scheduler.check(ctx)?;
            std::thread::sleep(BETWEEN_LOOKS);
        }
        self.context(ctx)?.output.flush();
        self.scheduler.check(ctx)
    }
}

/// A file of ours that is called `kind` and a device's ordinal.
fn device_of(kind: &str, fd: BorrowedFd<'_>) -> Result<DeviceId> {
    let name =
        std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(|_| INVALID)?;
    let name = name.to_string_lossy();
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    let device = name
        .strip_prefix("/memfd:outboard-")
        .and_then(|name| name.strip_prefix(kind))
        .ok_or(INVALID)?;
    device.parse().map(DeviceId::new).map_err(|_| INVALID)
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
}

impl Sharing for Cpu {
    fn share_memory(
        &self,
        ctx: ContextId,
        DevicePtr(address): DevicePtr,
        bytes: u64,
    ) -> Result<Token> {
        let context = self.context(ctx)?;
        if let Some((engine, offset, bytes)) = self.mappings.allocation(address)? {
            return self.share_part(&engine, offset, bytes);
        }
        context.check_owned(address)?;
        self.share_range(&context.engine, address, bytes)
    }

    fn open_memory(&self, ctx: ContextId, token: &Token, _flags: u32) -> Result<(DevicePtr, u64)> {
        let part = Part::decode(MEMORY, token)?;
        let engine = self.context(ctx)?.engine.clone();
        let mut all = self.opened.0.lock();
        if let Some((opened, count)) = all.get_mut(&(ctx, part)) {
            *count += 1;
            return Ok((DevicePtr(opened.address), opened.bytes));
        }
        let opened = Opened::new(engine, &part)?;
        let place = (DevicePtr(opened.address), opened.bytes);
        all.insert((ctx, part), (opened, 1));
        Ok(place)
    }

    fn close_memory(&self, ctx: ContextId, DevicePtr(address): DevicePtr) -> Result<()> {
        self.wait_for_everything();
        let mut all = self.opened.0.lock();
        let found = all
            .iter_mut()
            .find(|((owner, _), (opened, _))| *owner == ctx && opened.address == address);
        let (key, (_, count)) = found.ok_or(INVALID)?;
        *count -= 1;
        if *count == 0 {
            let key = *key;
            all.remove(&key);
        }
        Ok(())
    }

    fn share_event(&self, _ctx: ContextId, event: ObjectId) -> Result<Token> {
        let event = self.event(event)?;
        let shared = event.shared.as_ref().ok_or(INVALID)?;
        let offer = match shared.offer.get() {
            Some(offer) => *offer,
            None => {
                let made = offers::offer(shared.file.as_fd())?;
                let kept = *shared.offer.get_or_init(|| made);
                if kept != made {
                    // Another thread was first.
                    offers::withdraw(&made);
                }
                kept
            }
        };
        Ok(Part { offer, offset: 0, bytes: page_bytes() }.encode(EVENT))
    }

    fn open_event(&self, ctx: ContextId, event: ObjectId, token: &Token) -> Result<()> {
        let shared = SharedEvent::map(Part::decode(EVENT, token)?.open()?)?;
        self.insert_event(event, Event::of(ctx, shared));
        Ok(())
    }

    fn export_physical(&self, _home: DeviceId, memory: ObjectId) -> Result<OwnedFd> {
        duplicate(self.physical.get(memory)?.shareable().ok_or(INVALID)?)
    }

    fn import_physical(&self, memory: ObjectId, fd: BorrowedFd<'_>) -> Result<(u64, MemoryKind)> {
        let device = device_of(crate::vmm::FILE_NAME, fd)?;
        let engine = self.engine(device)?.clone();
        let bytes = rustix::fs::fstat(fd).map_err(|_| INVALID)?.st_size as u64;
        self.physical.insert(memory, Physical::import(engine, bytes, duplicate(fd)?));
        Ok((bytes, MemoryKind { device, handle_types: 1, compression: 0, usage: 0 }))
    }

    fn export_pool(&self, _home: DeviceId, pool: ObjectId) -> Result<OwnedFd> {
        // Nothing but its name: pointers say where memory is.
        let name = format!("outboard-pool-{}", self.pools.get(pool)?.device);
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create(name, flags).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }

    fn import_pool(&self, pool: ObjectId, fd: BorrowedFd<'_>) -> Result<DeviceId> {
        let device = device_of("pool-", fd)?;
        self.pools.insert(pool, self.default_pool(device)?);
        Ok(device)
    }

    fn share_pooled(
        &self,
        _home: DeviceId,
        DevicePtr(address): DevicePtr,
        bytes: u64,
    ) -> Result<Token> {
        let (allocated, engine) = self.pooled.find(address).ok_or(INVALID)?;
        self.share_range(&engine, address, bytes.min(allocated))
    }

    fn open_pooled(
        &self,
        ctx: ContextId,
        pool: ObjectId,
        token: &Token,
    ) -> Result<(DevicePtr, u64)> {
        let opened =
            Opened::new(self.pools.get(pool)?.engine.clone(), &Part::decode(MEMORY, token)?)?;
        let (address, bytes) = (opened.address, opened.bytes);
        self.pooled.insert_opened(ctx, address, bytes, opened);
        Ok((DevicePtr(address), bytes))
    }
}
