//! The calling thread's stack of contexts.
//!
//! It outlives the thread's destructors: those of the program may free device memory.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;

use smallvec::SmallVec;

use super::Context;

/// Programs seldom have more of them below the top.
const USUAL: usize = 6;

thread_local! {
    static TOP: Cell<Option<&'static Context>> = const { Cell::new(None) };
    /// It holds memory only while there are more than usual, since nobody drops it.
    static BELOW: RefCell<ManuallyDrop<SmallVec<[&'static Context; USUAL]>>> =
        const { RefCell::new(ManuallyDrop::new(SmallVec::new_const())) };
}

/// The context on top of the calling thread's stack.
#[inline]
pub(crate) fn top() -> Option<&'static Context> {
    TOP.get()
}

pub(crate) fn push(context: &'static Context) {
    if let Some(before) = TOP.replace(Some(context)) {
        BELOW.with_borrow_mut(|below| below.push(before));
    }
}

pub(crate) fn pop() -> Option<&'static Context> {
    let next = BELOW.with_borrow_mut(|below| {
        let next = below.pop();
        if below.spilled() && below.len() <= USUAL {
            below.shrink_to_fit();
        }
        next
    });
    TOP.replace(next)
}
