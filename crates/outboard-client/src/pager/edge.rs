//! The first and last bytes of memory that a program registered, where they share a page with
//! memory that it did not: those pages hold the allocator's own words, which may be touched under
//! its locks, so that they are never protected. They are compared instead.

use outboard_front::backend::{Result, UnifiedPtr};

use super::moved::Moved;
use super::store::{Home, Store};

/// Less than a page of registered memory.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) home: Home,
    pub(super) address: UnifiedPtr,
    /// What the device has.
    pub(super) twin: Vec<u8>,
    /// The wait with whose answer it is to come, unless it changes before.
    pub(super) coming: Option<u64>,
    /// It has come with the answer to the wait at hand.
    pub(super) came: bool,
}

impl Edge {
    pub(super) fn new(home: Home, address: UnifiedPtr, bytes: usize) -> Edge {
        Edge { home, address, twin: vec![0; bytes], coming: None, came: false }
    }

    pub(super) fn end(&self) -> UnifiedPtr {
        self.address.offset(self.twin.len() as u64)
    }

    fn program(&self, index: usize) -> *mut u8 {
        self.address.offset(index as u64).host().pointer()
    }

    /// Sends what the program has changed.
    pub(super) fn flush(&mut self, store: &dyn Store, moved: &mut Moved) -> Result<()> {
        let mut index = 0;
        while index < self.twin.len() {
            let start = index;
            loop {
                // SAFETY: the program keeps registered memory readable until it takes it back,
                // which removes the edge.
                let now = (index < self.twin.len())
                    .then(|| unsafe { self.program(index).read_volatile() });
                match now {
                    Some(now) if now != self.twin[index] => self.twin[index] = now,
                    _ => break,
                }
                index += 1;
            }
            if index > start {
                self.coming = None;
                // SAFETY: bytes of this value.
                unsafe {
                    store.push(
                        self.home,
                        self.address.offset(start as u64),
                        self.twin[start..].as_ptr(),
                        index - start,
                    )
                }?;
                moved.pushed += (index - start) as u64;
            }
            index += 1;
        }
        Ok(())
    }

    /// Takes over what the device has changed.
    pub(super) fn bring(&mut self, store: &dyn Store, moved: &mut Moved) -> Result<()> {
        let mut now = vec![0; self.twin.len()];
        // SAFETY: bytes of this function.
        unsafe { store.fetch(self.home, self.address, now.as_mut_ptr(), now.len(), None) }?;
        self.take(now, moved);
        Ok(())
    }

    /// Takes over what the device has changed, of what it has now.
    pub(super) fn take(&mut self, now: Vec<u8>, moved: &mut Moved) {
        moved.fetched += now.len() as u64;
        for (index, (new, old)) in now.iter().zip(&self.twin).enumerate() {
            if new != old {
                // SAFETY: the program keeps registered memory writable until it takes it back.
                unsafe { self.program(index).write_volatile(*new) };
            }
        }
        self.twin = now;
    }
}
