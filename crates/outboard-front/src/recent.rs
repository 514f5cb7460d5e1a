//! A thread's cache of recent look-ups.
//!
//! Looking up a handle without a lock takes two atomic read-modify-write operations, which take
//! longer than everything else that a launch does before it is encoded. A thread uses the same few
//! streams, events and kernels repeatedly: it caches them, with a mark that shows when one has
//! ended. Only objects that own nothing but memory are cached, so that it does not matter when the
//! last thread drops one.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many a thread keeps, a power of two. Each handle has one place, which others may take from
/// it.
const PLACES: usize = 16;

/// A number that never comes back once it has changed: as long as it is what it was, so is what it
/// stands for.
#[derive(Clone, Copy)]
pub(crate) struct Sign {
    pub(crate) number: &'static AtomicU64,
    pub(crate) was: u64,
}

impl Sign {
    #[inline]
    fn holds(self) -> bool {
        self.number.load(Ordering::Acquire) == self.was
    }
}

/// A share in an object that this thread counts the users of: no other thread looks at that count,
/// so that it needs no locked operation.
pub(crate) struct Own<T>(pub(crate) Arc<T>);

struct CachedObject {
    handle: u64,
    signs: [Sign; 2],
    object: Rc<dyn Any>,
}

thread_local! {
    static KEPT: [RefCell<Option<CachedObject>>; PLACES] = const { [const { RefCell::new(None) }; PLACES] };
}

#[inline]
fn place(handle: u64) -> usize {
    // Handles differ in their low bits, but for the lowest four, and above them by kind.
    (handle >> 4 ^ handle >> 42) as usize % PLACES
}

/// The object that this thread has cached for a handle, if it is still alive.
#[inline]
pub(crate) fn find<T: Any>(handle: u64) -> Option<Rc<Own<T>>> {
    let found = KEPT.try_with(|kept| {
        let kept = kept[place(handle)].try_borrow().ok()?;
        let kept = kept
            .as_ref()
            .filter(|kept| kept.handle == handle && kept.signs.iter().all(|sign| sign.holds()))?;
        Rc::clone(&kept.object).downcast().ok()
    });
    found.ok().flatten()
}

/// Keeps an object for this thread, as long as both signs hold.
pub(crate) fn keep<T: Any>(handle: u64, signs: [Sign; 2], object: Arc<T>) -> Rc<Own<T>> {
    let object = Rc::new(Own(object));
    let kept = CachedObject { handle, signs, object: Rc::clone(&object) as Rc<dyn Any> };
    // The replaced object is dropped after the borrow has ended.
    let _before =
        KEPT.try_with(|places| places[place(handle)].try_borrow_mut().ok()?.replace(kept));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_not_found_again_even_under_the_same_handle() {
        static LIFE: AtomicU64 = AtomicU64::new(1);
        static OTHER: AtomicU64 = AtomicU64::new(1);
        let signs =
            || [&LIFE, &OTHER].map(|number| Sign { number, was: number.load(Ordering::Relaxed) });
        assert!(find::<u32>(0x40).is_none());
        keep(0x40, signs(), Arc::new(7_u32));
        assert_eq!(find::<u32>(0x40).map(|kept| *kept.0), Some(7));
        assert!(find::<u64>(0x40).is_none(), "it is no such thing");
        assert!(find::<u32>(0x50).is_none());
        std::thread::spawn(|| assert!(find::<u32>(0x40).is_none(), "each thread has its own"))
            .join()
            .unwrap();
        for number in [&LIFE, &OTHER] {
            number.fetch_add(1, Ordering::Relaxed);
            assert!(find::<u32>(0x40).is_none());
            keep(0x40, signs(), Arc::new(8_u32));
            assert_eq!(find::<u32>(0x40).map(|kept| *kept.0), Some(8));
        }
    }

    #[test]
    fn one_handle_may_take_the_place_of_another_that_is_in_use() {
        static LIFE: AtomicU64 = AtomicU64::new(1);
        let signs = [Sign { number: &LIFE, was: 1 }; 2];
        let first = keep(0x10, signs, Arc::new(1_u32));
        keep(0x10 + (PLACES as u64) * 16, signs, Arc::new(2_u32));
        assert_eq!(*first.0, 1);
        assert!(find::<u32>(0x10).is_none());
    }
}
