//! The calling thread's stack of contexts.

use core::cell::RefCell;

use super::Context;

thread_local! {
    static STACK: RefCell<Vec<&'static Context>> = const { RefCell::new(Vec::new()) };
}

/// The context on top of the calling thread's stack.
#[inline]
pub(crate) fn top() -> Option<&'static Context> {
    STACK.try_with(|stack| stack.borrow().last().copied()).ok().flatten()
}

pub(crate) fn push(context: &'static Context) {
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

pub(crate) fn pop() -> Option<&'static Context> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}
