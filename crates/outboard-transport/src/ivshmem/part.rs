//! A session's part of a region, and the slots in it, of which each is the memory of a connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex};

use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::locks::lock;
use crate::rings::{BYTES, Keeper, SAID};

/// Where a slot's page has what either side writes to see whether the other reads it.
const TRIALS: [usize; 2] = [2048, 2048 + size_of::<Trial>()];
const _: () = assert!(SAID <= TRIALS[0]);

/// What a side writes into a slot, for the other to read there.
pub(super) type Trial = [u8; 16];

/// Whose trial.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Client = 0,
    Server = 1,
}

/// How many slots a part of so many bytes has.
pub(super) fn most_slots(bytes: u64) -> u32 {
    // As many as a mask of them has bits.
    (bytes / BYTES as u64).min(32) as u32
}

/// Some of a file, mapped. Others change the bytes at any time.
#[derive(Debug)]
pub(super) struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory, which other processes use at the same time anyway; it is only copied from
// and to, and whoever uses its address sees to order.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(file: impl AsFd, offset: u64, bytes: u64) -> io::Result<Mapping> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let end = offset.checked_add(bytes).filter(|_| offset.is_multiple_of(4096) && bytes > 0);
        let has = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        // Beyond a file's end there is memory that kills who touches it.
        if end.is_none_or(|end| end > has) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the shared memory is smaller than the other side says",
            ));
        }
        // SAFETY: a new mapping, wherever there is room.
        let memory = unsafe {
            mmap(
                null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        let memory = NonNull::new(memory.cast())
            .ok_or_else(|| io::Error::other("shared memory at address 0"))?;
        Ok(Mapping { memory, bytes: length })
    }

    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.bytes);
        let mut copy = [0; N];
        // SAFETY: inside the mapping; others may change the bytes, which are copied before they
        // are looked at.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.memory.as_ptr().add(at), N) };
        copy
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes);
        // SAFETY: inside the mapping.
        unsafe {
            self.memory.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, which nobody uses any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// A session's part, as one of its sides has it.
#[derive(Debug)]
pub struct Part {
    memory: Mapping,
    slots: u32,
    /// Which slots this side uses, a bit for each.
    used: Mutex<Used>,
    /// On the server, the descriptor by which it is locked.
    _file: OwnedFd,
}

#[derive(Debug, Default)]
struct Used {
    mask: u32,
    /// Slots are taken in turn, since the peer may be late to notice that one is free.
    next: u32,
}

impl Part {
    /// The part of that file which begins at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file is smaller, or the system's error.
    pub fn map(file: OwnedFd, offset: u64, bytes: u64) -> io::Result<Arc<Part>> {
        let memory = Mapping::new(&file, offset, bytes)?;
        let slots = most_slots(bytes);
        Ok(Arc::new(Part { memory, slots, used: Mutex::default(), _file: file }))
    }

    /// The slots that this side does not use.
    pub(super) fn free(&self) -> u32 {
        let all = u32::MAX.checked_shr(32 - self.slots).unwrap_or(0);
        all & !lock(&self.used).mask
    }

    /// Takes one of these slots for a connection, if one is free.
    pub(super) fn take(self: &Arc<Part>, among: u32) -> Option<Slot> {
        let mut used = lock(&self.used);
        let turns = (0..self.slots).map(|turn| (used.next + turn) % self.slots);
        let number = turns.into_iter().find(|number| among & !used.mask & (1 << number) != 0)?;
        used.mask |= 1 << number;
        used.next = (number + 1) % self.slots;
        Some(Slot { part: Arc::clone(self), number })
    }
}

/// The memory of one connection, which nothing else of this side uses.
#[derive(Debug)]
pub(super) struct Slot {
    part: Arc<Part>,
    number: u32,
}

impl Slot {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    fn at(&self, offset: usize) -> usize {
        self.number as usize * BYTES + offset
    }

    /// Makes the rings empty, as the server does before a connection uses them.
    pub(super) fn clear(&self) {
        self.part.memory.write(self.at(0), &[0; SAID]);
    }

    pub(super) fn write(&self, by: By, trial: Trial) {
        self.part.memory.write(self.at(TRIALS[by as usize]), &trial);
    }

    pub(super) fn read(&self, by: By) -> Trial {
        self.part.memory.read(self.at(TRIALS[by as usize]))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.part.used).mask &= !(1 << self.number);
    }
}

// SAFETY: parts and slots begin at pages, the part has that many slots of that size, and the slot
// keeps the part.
unsafe impl Keeper for Slot {
    fn memory(&self) -> NonNull<u8> {
        // SAFETY: inside the mapping.
        unsafe { self.part.memory.memory.add(self.at(0)) }
    }
}

const _: () = assert!(BYTES.is_multiple_of(4096));

/// Maps what another mapping of the same file has, for tests.
#[cfg(test)]
pub(super) fn whole(file: &std::fs::File) -> io::Result<Mapping> {
    Mapping::new(file, 0, file.metadata()?.len())
}
