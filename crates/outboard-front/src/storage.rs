//! Context-local storage: values that runtimes hang on a context, with destructors for its end.

use core::ffi::c_void;
use std::collections::HashMap;

use outboard_abi::CUcontext;
use parking_lot::RwLock;

/// Called with context, key and value when the context ends.
pub(crate) type Destructor = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);

struct Value {
    value: usize,
    destructor: Option<Destructor>,
}

/// The storage of one context. A runtime reads it at every call it gets.
#[derive(Default)]
pub(crate) struct Storage(RwLock<HashMap<usize, Value>>);

impl Storage {
    pub(crate) fn put(&self, key: usize, value: usize, destructor: Option<Destructor>) {
        self.0.write().insert(key, Value { value, destructor });
    }

    pub(crate) fn get(&self, key: usize) -> Option<usize> {
        self.0.read().get(&key).map(|value| value.value)
    }

    /// Forgets a value; its destructor does not run.
    pub(crate) fn delete(&self, key: usize) {
        self.0.write().remove(&key);
    }

    /// Runs the destructors and forgets everything. They may call the driver again, so no lock is held meanwhile.
    pub(crate) fn end(&self, context: u64) {
        let values = std::mem::take(&mut *self.0.write());
        for (key, value) in values {
            if let Some(destructor) = value.destructor {
                // SAFETY: the runtime gave this function for just this call.
                unsafe { destructor(context as CUcontext, key as *mut c_void, value.value as *mut c_void) };
            }
        }
    }
}
