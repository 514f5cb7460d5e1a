//! Context-local storage: values that runtimes hang on a context, with destructors for its end.

use core::ffi::c_void;
use std::sync::Arc;

use arc_swap::ArcSwap;
use outboard_abi::CUcontext;

/// Called with context, key and value when the context ends.
pub(crate) type Destructor = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);

#[derive(Clone, Copy)]
struct Value {
    key: usize,
    value: usize,
    destructor: Option<Destructor>,
}

/// The storage of one context: a few values, which a runtime reads at every call it gets and hardly
/// ever changes.
#[derive(Default)]
pub(crate) struct Storage(ArcSwap<Vec<Value>>);

impl Storage {
    pub(crate) fn put(&self, key: usize, value: usize, destructor: Option<Destructor>) {
        self.0.rcu(|values| {
            without(values, key).chain([Value { key, value, destructor }]).collect::<Vec<_>>()
        });
    }

    pub(crate) fn get(&self, key: usize) -> Option<usize> {
        self.0.load().iter().find(|value| value.key == key).map(|value| value.value)
    }

    /// Forgets a value; its destructor does not run.
    pub(crate) fn delete(&self, key: usize) {
        self.0.rcu(|values| without(values, key).collect::<Vec<_>>());
    }

    /// Runs the destructors and forgets everything. They may call the driver again, so no lock is
    /// held meanwhile.
    pub(crate) fn end(&self, context: u64) {
        for Value { key, value, destructor } in self.0.swap(Arc::default()).iter().copied() {
            if let Some(destructor) = destructor {
                // SAFETY: the runtime gave this function for just this call.
                unsafe {
                    destructor(context as CUcontext, key as *mut c_void, value as *mut c_void)
                };
            }
        }
    }
}

fn without(values: &[Value], key: usize) -> impl Iterator<Item = Value> {
    values.iter().copied().filter(move |value| value.key != key)
}
