//! The memory of messages that wait or arrive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use outboard_session::chunks::Cut;

use crate::io::Sink;

/// So many bytes for messages, and not more.
#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

struct Inner {
    most: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

/// Room for one message, until it is dropped.
pub(crate) struct Room {
    store: Store,
    bytes: usize,
}

impl Store {
    pub(super) fn new(most: usize) -> Store {
        Store(Arc::new(Inner { most, taken: Mutex::new(0), freed: Condvar::new() }))
    }

    /// Room, if there is some.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Room> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > self.0.most.saturating_sub(*taken) {
            return None;
        }
        *taken += bytes;
        Some(Room { store: self.clone(), bytes })
    }

    /// Waits for room. A message that is larger than all of it is the only one then.
    pub(super) fn take(&self, bytes: usize) -> Room {
        let inner = &self.0;
        let mut taken = inner.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken > 0 && bytes > inner.most.saturating_sub(*taken) {
            taken = inner.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += bytes;
        Room { store: self.clone(), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let inner = &self.store.0;
        *inner.taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        inner.freed.notify_all();
    }
}

/// Bytes that are not set yet.
pub(super) struct Bytes {
    memory: *mut u8,
    bytes: usize,
    _room: Room,
}

// SAFETY: the memory is this value's own.
unsafe impl Send for Bytes {}
// SAFETY: as above; whoever uses an address that `at` gives says that nobody else does.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// None if the system has no memory.
    pub(super) fn new(bytes: usize, room: Room) -> Option<Bytes> {
        let mut memory: Vec<u8> = Vec::new();
        memory.try_reserve_exact(bytes).ok()?;
        let mut memory = std::mem::ManuallyDrop::new(memory);
        Some(Bytes { memory: memory.as_mut_ptr(), bytes: memory.capacity(), _room: room })
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.bytes);
        self.memory.wrapping_add(offset)
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: these are the parts of a vector, which `new` has taken apart.
        drop(unsafe { Vec::from_raw_parts(self.memory, 0, self.bytes) });
    }
}

/// A message that arrives.
pub(super) struct Arriving {
    bytes: Bytes,
    cut: Cut,
    come: Box<[AtomicBool]>,
    /// Guards nothing: whoever looks at the chunks waits here for one more.
    looked: Mutex<()>,
    more: Condvar,
}

impl Arriving {
    pub(super) fn new(room: Room, cut: Cut) -> Option<Arriving> {
        let come = (0..cut.count()).map(|_| AtomicBool::new(false)).collect();
        let bytes = Bytes::new(cut.len() as usize, room)?;
        Some(Arriving { bytes, cut, come, looked: Mutex::new(()), more: Condvar::new() })
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        self.bytes.at(offset)
    }

    /// Something has changed.
    pub(super) fn look(&self) {
        drop(self.looked.lock());
        self.more.notify_all();
    }

    /// Waits until more has come than so many bytes, which end where a chunk does, without a gap;
    /// how many have. None if it is over and no more will come.
    pub(super) fn wait_beyond(&self, bytes: usize, is_over: impl Fn() -> bool) -> Option<usize> {
        let first = bytes / self.cut.chunk() as usize;
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let rest = &self.come[first..];
            let come = rest.iter().take_while(|come| come.load(Ordering::Acquire)).count();
            if come > 0 {
                let end = self.cut.offset((first + come) as u32).min(self.cut.len());
                return Some(end as usize);
            }
            if is_over() {
                return None;
            }
            looked = self.more.wait(looked).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

// SAFETY: each chunk has its own part of the memory, which nobody reads before the chunk is said to
// be filled.
unsafe impl Sink for Arriving {
    fn slot(&self, index: u32, _len: u32) -> *mut u8 {
        self.bytes.at(self.cut.offset(index) as usize)
    }

    fn filled(&self, index: u32) {
        self.come[index as usize].store(true, Ordering::Release);
        self.look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back() {
        let store = Store::new(100);
        let one = store.try_take(60).unwrap();
        assert!(store.try_take(41).is_none());
        let two = store.try_take(40).unwrap();
        drop(one);
        let waiting = store.clone();
        let larger = std::thread::spawn(move || drop(waiting.take(1000)));
        assert!(store.try_take(60).is_some());
        drop(two);
        larger.join().unwrap();
        assert!(store.try_take(100).is_some());
    }

    #[test]
    fn what_has_come_without_a_gap_is_told() {
        let cut = Cut::new(200 << 10, 64 << 10).unwrap();
        let store = Store::new(1 << 20);
        let arriving = Arriving::new(store.take(200 << 10), cut).unwrap();
        assert_eq!(arriving.wait_beyond(0, || true), None);
        arriving.filled(1);
        assert_eq!(arriving.wait_beyond(0, || true), None);
        arriving.filled(0);
        assert_eq!(arriving.wait_beyond(0, || false), Some(128 << 10));
        arriving.filled(2);
        arriving.filled(3);
        assert_eq!(arriving.wait_beyond(128 << 10, || false), Some(200 << 10));
        assert_eq!(arriving.slot(3, 8 << 10), arriving.at(192 << 10));
    }
}
