//! Memory and events shared among processes of one machine.
//!
//! All of it lies in files that exist only as open descriptors. A token says which process offers
//! the file ([`crate::offers`]), and which part of it is meant. A process that may open no sockets
//! passes on the files itself ([`handle_files`]). A descriptor that is passed on is a
//! file itself, and its name says what is in it.

mod calls;
mod files;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result, Token};
use outboard_simt::Engine;
use outboard_transport::page::page_bytes;
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::offers::{self, Offer};
pub(crate) use files::handle_files;

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
        let first = part.offset & !(page_bytes() - 1);
        let span =
            (part.offset + part.bytes).checked_next_multiple_of(page_bytes()).ok_or(INVALID)?
                - first;
        let base = memory
            .reserve(span, page_bytes(), 0)
            .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
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
        memory.unmap(
            self.base,
            (self.address + self.bytes).next_multiple_of(page_bytes()) - self.base,
        );
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
        let file = outboard_simt::memory_file(page_bytes())
            .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        SharedEvent::map(file)
    }

    fn map(file: OwnedFd) -> Result<Arc<SharedEvent>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that holds no Rust
        // values.
        let address = unsafe {
            mmap(std::ptr::null_mut(), page_bytes() as usize, access, MapFlags::SHARED, &file, 0)
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
        let _ = unsafe { munmap(self.address as *mut std::ffi::c_void, page_bytes() as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of pages of the machines on which tests run.
    const PAGE: u64 = 4096;

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
