//! Handles: what a program holds in place of an object.
//!
//! A handle looks like a pointer that nobody may follow: kind, generation and index in the bits of an address. Looking one up tells a live
//! object from a destroyed or foreign one, which a real pointer could not.

use std::sync::Arc;

use outboard_abi::CUresult;
use parking_lot::RwLock;

/// What a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Kind {
    Context = 1,
    Stream = 2,
    Event = 3,
    Module = 4,
    Function = 5,
    Library = 6,
    Kernel = 7,
    Memory = 20,
    Link = 8,
    GreenContext = 40,
    Descriptor = 41,
    MipmappedArray = 13,
    Array = 14,
    TextureReference = 15,
    SurfaceReference = 16,
    Pool = 21,
}

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 15;
/// Handles are multiples of this, as pointers to objects would be.
const ALIGN_BITS: u32 = 4;

struct Slot<T> {
    generation: u64,
    value: Option<Arc<T>>,
}

/// The live objects of one kind.
pub(crate) struct Table<T> {
    kind: Kind,
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<usize>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Table<T> {
        Table { kind, slots: RwLock::new(Slots { all: Vec::new(), free: Vec::new() }) }
    }

    /// Adds the object that `make` builds from its handle. `None` when 2²⁴ objects are alive.
    pub(crate) fn insert(&self, make: impl FnOnce(u64) -> T) -> Option<Arc<T>> {
        let handle = self.reserve()?;
        let value = Arc::new(make(handle));
        self.fill(handle, value.clone());
        Some(value)
    }

    /// A handle without an object yet: for what must be named before it is known. Goes to [`Table::fill`] or [`Table::release`].
    pub(crate) fn reserve(&self) -> Option<u64> {
        let mut slots = self.slots.write();
        let index = match slots.free.pop() {
            Some(index) => index,
            None if slots.all.len() < 1 << INDEX_BITS => {
                slots.all.push(Slot { generation: 0, value: None });
                slots.all.len() - 1
            }
            None => return None,
        };
        let slot = &mut slots.all[index];
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        Some(encode(self.kind, slot.generation, index))
    }

    /// Gives a reserved handle its object.
    pub(crate) fn fill(&self, handle: u64, value: Arc<T>) {
        if let Some((_, index)) = decode(self.kind, handle) {
            self.slots.write().all[index].value = Some(value);
        }
    }

    /// Gives a reserved handle back.
    pub(crate) fn release(&self, handle: u64) {
        if let Some((_, index)) = decode(self.kind, handle) {
            self.slots.write().free.push(index);
        }
    }

    /// The object of a handle, if it is alive.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        let (generation, index) = decode(self.kind, handle)?;
        let slots = self.slots.read();
        let slot = slots.all.get(index).filter(|slot| slot.generation == generation)?;
        slot.value.clone()
    }

    /// Ends a handle and gives back its object.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let (generation, index) = decode(self.kind, handle)?;
        let mut slots = self.slots.write();
        let slot = slots.all.get_mut(index).filter(|slot| slot.generation == generation)?;
        let value = slot.value.take()?;
        slots.free.push(index);
        Some(value)
    }

    /// Ends all handles whose object is `doomed`.
    pub(crate) fn remove_where(&self, doomed: impl Fn(&T) -> bool) {
        let mut slots = self.slots.write();
        let Slots { all, free } = &mut *slots;
        for (index, slot) in all.iter_mut().enumerate() {
            if slot.value.as_deref().is_some_and(&doomed) {
                slot.value = None;
                free.push(index);
            }
        }
    }

    /// Calls `visit` for every object.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<T>)) {
        let all: Vec<Arc<T>> = self.slots.read().all.iter().filter_map(|slot| slot.value.clone()).collect();
        all.iter().for_each(visit);
    }

    /// The first object that is `wanted`.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.slots.read().all.iter().filter_map(|slot| slot.value.as_ref()).find(|value| wanted(value)).cloned()
    }
}

/// Whether the bits of `handle` name an object of this kind, alive or not.
pub(crate) fn is(kind: Kind, handle: u64) -> bool {
    decode(kind, handle).is_some()
}

/// Why a handle of this kind was not found. Native drivers say that the context is gone when a stream, event or context is no more; null and
/// what never was a handle are invalid.
pub(crate) fn not_found(kind: Kind, handle: u64) -> CUresult {
    if is(kind, handle) { CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED } else { CUresult::CUDA_ERROR_INVALID_HANDLE }
}

fn encode(kind: Kind, generation: u64, index: usize) -> u64 {
    (((kind as u64) << GENERATION_BITS | generation) << INDEX_BITS | index as u64) << ALIGN_BITS
}

fn decode(kind: Kind, handle: u64) -> Option<(u64, usize)> {
    let bits = handle >> ALIGN_BITS;
    let index = (bits & ((1 << INDEX_BITS) - 1)) as usize;
    let generation = bits >> INDEX_BITS & ((1 << GENERATION_BITS) - 1);
    (encode(kind, generation, index) == handle).then_some((generation, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_handles_are_not_found_again() {
        let table = Table::new(Kind::Stream);
        let first = table.insert(|handle| handle).unwrap();
        assert!(table.get(*first).is_some());
        assert!(table.remove(*first).is_some());
        assert!(table.get(*first).is_none() && table.remove(*first).is_none());
        let second = table.insert(|handle| handle).unwrap();
        assert_ne!(*first, *second, "the slot is used again, the handle is not");
        assert!(table.get(*first).is_none());
    }

    #[test]
    fn handles_tell_kinds_apart_and_look_like_addresses() {
        let streams = Table::new(Kind::Stream);
        let events: Table<u64> = Table::new(Kind::Event);
        let handle = *streams.insert(|handle| handle).unwrap();
        assert!(events.get(handle).is_none());
        assert!(is(Kind::Stream, handle) && !is(Kind::Event, handle));
        assert!(handle < 1 << 47 && handle.is_multiple_of(16) && handle > 4096);
        for wild in [0, 1, 2, handle + 1, u64::MAX, 0x7fff_dead_beef] {
            assert!(streams.get(wild).is_none());
        }
    }
}
