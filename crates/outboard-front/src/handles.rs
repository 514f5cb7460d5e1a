//! Handles: what a program holds in place of an object.
//!
//! A handle looks like a pointer and must never be dereferenced: kind, generation and index in the
//! bits of an address. A look-up distinguishes a live object from a destroyed or foreign one, which
//! a pointer could not.

mod count;

use std::any::Any;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use outboard_abi::CUresult;
use parking_lot::Mutex;

use crate::recent::{self, Own, Sign};

/// The kind of object of a handle.
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
    Communicator = 42,
    File = 43,
}

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 15;
/// Handles are multiples of this, as pointers to objects would be.
const ALIGN_BITS: u32 = 4;

/// The first slots come in a chunk of this many, each later chunk has twice as many as the one
/// before.
const FIRST_BITS: u32 = 6;
const CHUNKS: usize = (INDEX_BITS - FIRST_BITS + 1) as usize;

struct Slot<T> {
    /// Set before a value is, and changed only while there is none.
    generation: AtomicU64,
    /// Counts the objects that came and went: odd while there is one.
    life: AtomicU64,
    value: ArcSwapOption<T>,
}

/// The live objects of one kind.
///
/// A look-up takes no lock and writes to no memory that other threads use. Slots stay where they
/// are: the table grows by chunks.
pub(crate) struct Table<T> {
    kind: Kind,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    /// Held by the thread that adds or removes.
    slots: Mutex<Slots>,
}

struct Slots {
    free: Vec<usize>,
    /// Slots from here on have never been used.
    next: usize,
}

/// A live object while it is looked at. One that is kept is cloned: that is an `Arc`.
pub(crate) struct Live<T>(Held<T>);

enum Held<T> {
    Guard(Guard<Option<Arc<T>>>),
    /// This thread keeps it.
    Kept(Rc<Own<T>>),
}

impl<T> Live<T> {
    /// What a place holds, if anything.
    #[inline]
    pub(crate) fn of(place: &ArcSwapOption<T>) -> Option<Live<T>> {
        let value = place.load();
        value.is_some().then_some(Live(Held::Guard(value)))
    }

    /// The object that this thread has cached for a handle, if it is still alive.
    #[inline]
    pub(crate) fn kept(handle: u64) -> Option<Live<T>>
    where
        T: Any,
    {
        recent::find(handle).map(|kept| Live(Held::Kept(kept)))
    }
}

impl<T> Deref for Live<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        match &self.0 {
            // Made of nothing else.
            Held::Guard(value) => {
                value.as_ref().unwrap_or_else(|| unreachable!("a live object is there"))
            }
            Held::Kept(value) => &value.0,
        }
    }
}

/// Chunk of a slot, and its place there.
fn place(index: usize) -> (usize, usize) {
    let shifted = index + (1 << FIRST_BITS);
    let chunk = shifted.ilog2();
    ((chunk - FIRST_BITS) as usize, shifted - (1 << chunk))
}

impl<T> Slot<T> {
    /// Takes the object out, if there is one. The table's lock is held.
    fn end(&self) -> Option<Arc<T>> {
        let value = self.value.swap(None)?;
        self.life.fetch_add(1, Ordering::Release);
        Some(value)
    }

    fn sign(&'static self) -> Option<Sign> {
        let was = self.life.load(Ordering::Acquire);
        (was % 2 == 1).then_some(Sign { number: &self.life, was })
    }
}

impl<T: Any> Table<T> {
    /// As [`Table::look`], for objects that hold nothing but memory: this thread caches the result.
    #[inline]
    pub(crate) fn look_again(&'static self, handle: u64) -> Option<Live<T>> {
        Live::kept(handle).or_else(|| self.look_and_keep(handle))
    }

    #[cold]
    fn look_and_keep(&'static self, handle: u64) -> Option<Live<T>> {
        // Before the object is looked for: if that is another one's by now, so is the sign.
        let sign = self.sign(handle);
        let object = self.look(handle)?;
        match sign {
            Some(sign) => {
                Some(Live(Held::Kept(recent::keep(handle, [sign; 2], Arc::clone(&object)))))
            }
            None => Some(object),
        }
    }

    /// A mark that shows whether the object of a handle, which is looked up afterwards, has ended.
    pub(crate) fn sign(&'static self, handle: u64) -> Option<Sign> {
        self.slot(decode(self.kind, handle)?.1)?.sign()
    }
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Table<T> {
        let slots = Mutex::new(Slots { free: Vec::new(), next: 0 });
        Table { kind, chunks: [const { OnceLock::new() }; CHUNKS], slots }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// Adds the object that `make` builds from its handle. `None` when 2²⁴ objects are alive.
    pub(crate) fn insert(&self, make: impl FnOnce(u64) -> T) -> Option<Arc<T>> {
        let handle = self.reserve()?;
        let value = Arc::new(make(handle));
        self.fill(handle, value.clone());
        Some(value)
    }

    /// A handle without an object yet: for an object that needs a handle before it exists. Goes to
    /// [`Table::fill`] or [`Table::release`].
    pub(crate) fn reserve(&self) -> Option<u64> {
        let mut slots = self.slots.lock();
        let index = match slots.free.pop() {
            Some(index) => index,
            None if slots.next < 1 << INDEX_BITS => {
                slots.next += 1;
                slots.next - 1
            }
            None => return None,
        };
        let (chunk, at) = place(index);
        let empty = || Slot {
            generation: AtomicU64::new(0),
            life: AtomicU64::new(0),
            value: ArcSwapOption::empty(),
        };
        let chunk = self
            .chunks
            .get(chunk)?
            .get_or_init(|| (0..1usize << FIRST_BITS << chunk).map(|_| empty()).collect());
        let slot = chunk.get(at)?;
        let generation =
            (slot.generation.load(Ordering::Relaxed) + 1) & ((1 << GENERATION_BITS) - 1);
        slot.generation.store(generation, Ordering::Relaxed);
        Some(encode(self.kind, generation, index))
    }

    /// Gives a reserved handle its object.
    pub(crate) fn fill(&self, handle: u64, value: Arc<T>) {
        if let Some((_, index)) = decode(self.kind, handle)
            && let Some(slot) = self.slot(index)
        {
            slot.value.store(Some(value));
            slot.life.fetch_add(1, Ordering::Release);
        }
    }

    /// Gives a reserved handle back.
    pub(crate) fn release(&self, handle: u64) {
        if let Some((_, index)) = decode(self.kind, handle) {
            self.slots.lock().free.push(index);
        }
    }

    /// The object of a handle, if it is alive, to be looked at.
    #[inline]
    pub(crate) fn look(&self, handle: u64) -> Option<Live<T>> {
        let (generation, index) = decode(self.kind, handle)?;
        let slot = self.slot(index)?;
        let value = Live::of(&slot.value)?;
        // The object that was found came after its generation: if that is the handle's, so is the
        // object.
        (slot.generation.load(Ordering::Acquire) == generation).then_some(value)
    }

    /// The object of a handle, if it is alive, to be kept.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.look(handle).map(|live| live.clone())
    }

    /// Ends a handle and gives back its object.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let (generation, index) = decode(self.kind, handle)?;
        let mut slots = self.slots.lock();
        let slot = self
            .slot(index)
            .filter(|slot| slot.generation.load(Ordering::Relaxed) == generation)?;
        let value = slot.end()?;
        slots.free.push(index);
        Some(value)
    }

    /// Ends all handles whose object is `doomed`.
    pub(crate) fn remove_where(&self, doomed: impl Fn(&T) -> bool) {
        let mut ended = Vec::new();
        let mut slots = self.slots.lock();
        for index in 0..slots.next {
            let Some(slot) = self.slot(index) else { continue };
            if slot.value.load().as_deref().is_some_and(&doomed) {
                ended.push(slot.end());
                slots.free.push(index);
            }
        }
        // The object's destructor may use the table.
        drop(slots);
    }

    /// All objects, in the order of their slots.
    fn all(&self) -> Vec<Arc<T>> {
        let used = self.slots.lock().next;
        (0..used).filter_map(|index| self.slot(index)?.value.load_full()).collect()
    }

    /// Calls `visit` for every object.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<T>)) {
        self.all().iter().for_each(visit);
    }

    /// The first object that is `wanted`.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let used = self.slots.lock().next;
        (0..used)
            .filter_map(|index| self.slot(index)?.value.load_full())
            .find(|value| wanted(value))
    }
}

/// Whether the bits of `handle` name an object of this kind, alive or not.
pub(crate) fn is(kind: Kind, handle: u64) -> bool {
    decode(kind, handle).is_some()
}

/// Why a handle of this kind was not found. Native drivers say that the context is gone when a
/// stream, event or context is no more; null and what never was a handle are invalid.
pub(crate) fn not_found(kind: Kind, handle: u64) -> CUresult {
    if is(kind, handle) {
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
    } else {
        CUresult::CUDA_ERROR_INVALID_HANDLE
    }
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
    fn slots_stay_apart() {
        assert_eq!(
            [0, 63, 64, 191, 192, (1 << INDEX_BITS) - 1].map(place),
            [(0, 0), (0, 63), (1, 0), (1, 127), (2, 0), (CHUNKS - 1, 63)]
        );
        let table = Table::new(Kind::Event);
        let all: Vec<u64> = (0..1000).map(|_| *table.insert(|handle| handle).unwrap()).collect();
        assert!(all.iter().all(|handle| **table.look(*handle).unwrap() == *handle));
        table.remove_where(|handle| handle & 16 != 0);
        assert!(all.iter().all(|handle| table.look(*handle).is_some() == (handle & 16 == 0)));
        assert_eq!(
            table.find(|handle| *handle > all[500]).as_deref(),
            all[501..].iter().find(|handle| **handle & 16 == 0)
        );
    }

    #[test]
    fn what_a_thread_keeps_ends_with_its_handle_even_if_that_comes_back() {
        static TABLE: Table<u64> = Table::new(Kind::Descriptor);
        let first = *TABLE.insert(|handle| handle).unwrap();
        assert_eq!(TABLE.look_again(first).map(|found| **found), Some(first));
        assert_eq!(TABLE.look_again(first).map(|found| **found), Some(first));
        TABLE.remove(first);
        assert!(TABLE.look_again(first).is_none());
        // Until the slot's generations begin anew.
        let mut count = 0_u64;
        loop {
            let mut handle = 0;
            let make = |made| {
                handle = made;
                count
            };
            TABLE.insert(make).unwrap();
            if handle == first {
                break;
            }
            TABLE.remove(handle);
            count += 1;
        }
        assert_eq!(TABLE.look_again(first).map(|found| **found), Some(count));
        TABLE.remove_where(|_| true);
        assert!(TABLE.look_again(first).is_none());
    }

    /// A handle must never give the object of another one, even if other threads make and end
    /// objects meanwhile.
    #[test]
    fn a_stale_handle_finds_nothing_while_others_come_and_go() {
        static TABLE: Table<u64> = Table::new(Kind::Event);
        let table = &TABLE;
        let newest = AtomicU64::new(0);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let handle = newest.load(Ordering::Acquire);
                        for found in
                            [table.look(handle), table.look_again(handle)].into_iter().flatten()
                        {
                            assert_eq!(**found, handle);
                        }
                    }
                });
            }
            for _ in 0..100_000 {
                let handle = *table.insert(|handle| handle).unwrap();
                newest.store(handle, Ordering::Release);
                assert_eq!(table.remove(handle).as_deref(), Some(&handle));
            }
            done.store(true, Ordering::Relaxed);
        });
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
