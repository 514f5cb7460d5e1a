//! The calling thread's stack of contexts.
//!
//! It outlives the thread's destructors: those of the program may free device memory.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;

use super::Context;

thread_local! {
    static TOP: Cell<Option<&'static Context>> = const { Cell::new(None) };
    /// It holds memory only while it is not empty, since nobody drops it.
    static BELOW: RefCell<ManuallyDrop<Vec<&'static Context>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
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
        if below.is_empty() {
            **below = Vec::new();
        }
        next
    });
    TOP.replace(next)
}
