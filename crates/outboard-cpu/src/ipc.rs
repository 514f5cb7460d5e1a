//! Memory and events shared among processes of one machine.
//!
//! All of it lies in files that exist only as open descriptors. A token says which process offers
//! the file ([`crate::offers`]), and which part of it is meant. A descriptor that is passed on is a
//! file itself, and its name says what is in it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, DeviceId, DevicePtr, MemoryKind, ObjectId, Result, Sharing, Token,
};
use outboard_simt::Engine;
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::cpu::Cpu;
use crate::event::Event;
use crate::offers::{self, Offer};
use crate::sched::Lane;
use crate::vmm::Physical;
use crate::work::{Condition, Word, Work};

const PAGE: u64 = 4096;
/// How tokens begin: for memory, for events.
const MEMORY: u64 = u64::from_le_bytes(*b"OBcpuMem");
const EVENT: u64 = u64::from_le_bytes(*b"OBcpuEvt");
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// A part of a file that a process offers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Part {
    offer: Offer,
    offset: u64,
    bytes: u64,
}

impl Part {
    fn encode(&self, kind: u64) -> Token {
        let Offer { process, socket, secret } = self.offer;
        let words = [kind, process, socket, secret, self.offset, self.bytes];
        let mut token = [0; 64];
        for (chunk, word) in token.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        token
    }

    fn decode(kind: u64, token: &Token) -> Result<Part> {
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(token.chunks_exact(8)) {
            *word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [_, process, socket, secret, offset, bytes, ..] = words;
        let part = Part { offer: Offer { process, socket, secret }, offset, bytes };
        if *token == part.encode(kind) { Ok(part) } else { Err(INVALID) }
    }

    /// The file, if it is there still and has such a part.
    fn open(&self) -> Result<OwnedFd> {
        let file = self.offer.take()?;
        let len = rustix::fs::fstat(&file).map_err(|_| INVALID)?.st_size as u64;
        let fits = self.offset.checked_add(self.bytes).is_some_and(|end| end <= len);
        if fits && self.bytes > 0 { Ok(file) } else { Err(INVALID) }
    }
}

/// Memory of another process, mapped as long as this lives.
pub(crate) struct Opened {
    engine: Arc<Engine>,
    address: u64,
    bytes: u64,
    /// The reservation.
    base: u64,
}

impl Opened {
    fn new(engine: Arc<Engine>, part: &Part) -> Result<Opened> {
        let file = part.open()?;
        let memory = engine.memory();
        // Allocations begin at multiples of 512 of the arena, parts of mappings at multiples of
        // 256, mappings at whole pages.
        if !part.offset.is_multiple_of(256) {
            return Err(INVALID);
        }
        let first = part.offset & !(PAGE - 1);
        let span =
            (part.offset + part.bytes).checked_next_multiple_of(PAGE).ok_or(INVALID)? - first;
        let base = memory.reserve(span, PAGE, 0).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let (address, bytes) = (base + part.offset - first, part.bytes);
        if !memory.map(base, span, file.as_fd(), first).is_ok_and(|mapped| mapped) {
            memory.unreserve(base);
            return Err(CUresult::CUDA_ERROR_MAP_FAILED);
        }
        memory.open_part(address, bytes);
        Ok(Opened { engine, address, bytes, base })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let memory = self.engine.memory();
        memory.close(self.address, self.bytes);
        memory.unmap(self.base, (self.address + self.bytes).next_multiple_of(PAGE) - self.base);
        memory.unreserve(self.base);
    }
}

/// What has been opened in a context, which is closed as often.
#[derive(Default)]
pub(crate) struct OpenedMemory(Mutex<HashMap<(ContextId, Part), (Opened, u32)>>);

impl OpenedMemory {
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.0.lock().retain(|(owner, _), _| *owner != ctx);
    }
}

/// An event that several processes see: how often it has been recorded, and which record has been
/// reached.
pub(crate) struct SharedEvent {
    file: OwnedFd,
    address: u64,
    /// Once it has been asked for.
    offer: OnceLock<Offer>,
}

impl SharedEvent {
    pub(crate) fn new() -> Result<Arc<SharedEvent>> {
        let file =
            outboard_simt::memory_file(PAGE).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        SharedEvent::map(file)
    }

    fn map(file: OwnedFd) -> Result<Arc<SharedEvent>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that holds no Rust
        // values.
        let address = unsafe {
            mmap(std::ptr::null_mut(), PAGE as usize, access, MapFlags::SHARED, &file, 0)
        }
        .map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
        Ok(Arc::new(SharedEvent { file, address: address as u64, offer: OnceLock::new() }))
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: an aligned word of our mapping, which every process accesses as an atomic.
        unsafe { AtomicU64::from_ptr((self.address + at) as *mut u64) }
    }

    /// The next record's number.
    pub(crate) fn next(&self) -> u64 {
        self.word(0).fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The latest record's number; 0 for none.
    pub(crate) fn latest(&self) -> u64 {
        self.word(0).load(Ordering::SeqCst)
    }

    /// Record `number` has been reached, and all before it.
    pub(crate) fn reached(&self, number: u64) {
        self.word(8).fetch_max(number, Ordering::SeqCst);
    }

    pub(crate) fn is_reached(&self, number: u64) -> bool {
        self.word(8).load(Ordering::SeqCst) >= number
    }

    /// Address of the number of the record that has been reached.
    pub(crate) fn reached_address(&self) -> u64 {
        self.address + 8
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        if let Some(offer) = self.offer.get() {
            offers::withdraw(offer);
        }
        // SAFETY: our own mapping, which nobody uses any more.
        let _ = unsafe { munmap(self.address as *mut std::ffi::c_void, PAGE as usize) };
    }
}

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
const LOOK: Duration = Duration::from_micros(50);

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
            std::thread::sleep(LOOK);
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
        Ok(Part { offer, offset: 0, bytes: PAGE }.encode(EVENT))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_anybody_are_refused_without_harm() {
        let file = outboard_simt::memory_file(2 * PAGE).expect("a file");
        let offer = offers::offer(file.as_fd()).expect("an offer");
        let own = Part { offer, offset: 0, bytes: PAGE };
        assert_eq!(Part::decode(MEMORY, &own.encode(MEMORY)), Ok(own));
        assert_eq!(own.open().err(), Some(CUresult::CUDA_ERROR_INVALID_CONTEXT));
        assert!(
            Part::decode(EVENT, &own.encode(MEMORY)).is_err()
                && Part::decode(MEMORY, &[0; 64]).is_err()
        );
        let mut longer = own.encode(MEMORY);
        longer[63] = 1;
        assert!(Part::decode(MEMORY, &longer).is_err());
        // Processes that are not there, or that offer nothing.
        for process in [0, 1, u64::MAX] {
            assert_eq!(
                Part { offer: Offer { process, ..offer }, ..own }.open().err(),
                Some(INVALID)
            );
        }
    }
}
