//! Functions and memory of the program under the numbers by which the worker may ask for them. A
//! number is valid as long as a graph, an executable or a launch holds it.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use outboard_abi::CUhostFn;
use outboard_front::backend::{HostCall, Result};
use parking_lot::Mutex;

use super::host_box::HostBox;

/// What the worker may request.
#[derive(Debug)]
pub(super) enum Thing {
    /// A function, called by one thread at a time.
    Call(Mutex<HostCall>),
    /// Memory that copies read.
    Source(HostBox),
    /// Memory that copies write.
    Destination(HostBox),
}

/// What makes two things the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Call { function: u64, data: u64 },
    Source(HostBox),
    Destination(HostBox),
}

/// A thing and its number, which goes with the last holder.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) number: u64,
    pub(super) thing: Thing,
    key: Key,
    of: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    last: u64,
    given: HashMap<u64, Weak<Given>>,
    /// The same thing twice has one number.
    numbers: HashMap<Key, u64>,
}

/// All numbers of a session.
#[derive(Debug, Default)]
pub(super) struct Numbers(Arc<Mutex<Known>>);

impl Numbers {
    /// The number of a function of the program, called with this argument.
    pub(super) fn call(&self, function: u64, data: u64) -> Result<Arc<Given>> {
        // SAFETY: the number is a function pointer, or 0 for `None`: the front made it from one.
        let pointer = unsafe { core::mem::transmute::<usize, CUhostFn>(function as usize) };
        // SAFETY: the program gave both for this.
        let call = unsafe { HostCall::plain(pointer, data as *mut c_void) }?;
        Ok(self.number(Key::Call { function, data }, || Thing::Call(Mutex::new(call))))
    }

    /// The number of a box of the program's memory that copies read.
    pub(super) fn source(&self, memory: HostBox) -> Arc<Given> {
        self.number(Key::Source(memory), || Thing::Source(memory))
    }

    /// The number of a box of the program's memory that copies write.
    pub(super) fn destination(&self, memory: HostBox) -> Arc<Given> {
        self.number(Key::Destination(memory), || Thing::Destination(memory))
    }

    fn number(&self, key: Key, thing: impl FnOnce() -> Thing) -> Arc<Given> {
        let mut known = self.0.lock();
        let old = known.numbers.get(&key).and_then(|number| known.given.get(number)?.upgrade());
        // One that is just going gets another number: its own goes with it.
        old.unwrap_or_else(|| {
            known.last += 1;
            let number = known.last;
            let given = Arc::new(Given { number, thing: thing(), key, of: Arc::clone(&self.0) });
            known.given.insert(number, Arc::downgrade(&given));
            known.numbers.insert(key, number);
            given
        })
    }

    /// How many are known.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let known = self.0.lock();
        assert_eq!(known.given.len(), known.numbers.len());
        known.given.len()
    }
}

impl Given {
    /// How much of it one run of a node needs: one call, or so many bytes.
    pub(super) fn share(&self) -> u64 {
        match &self.thing {
            Thing::Call(_) => 1,
            Thing::Source(memory) | Thing::Destination(memory) => memory.bytes(),
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let mut known = self.of.lock();
        known.given.remove(&self.number);
        if known.numbers.get(&self.key) == Some(&self.number) {
            known.numbers.remove(&self.key);
        }
    }
}
