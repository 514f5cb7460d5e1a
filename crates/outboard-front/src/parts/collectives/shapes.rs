//! What a communicator has done before: NCCL makes connections when it first does something, and
//! waits for other ranks meanwhile; it does not the next time.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_wire::collectives::{Collective, Function};
use parking_lot::Mutex;

/// So many are kept of a communicator; then it forgets them all, and learns them again.
const MOST: usize = 4096;

/// What of a collective decides how NCCL does it. NCCL chooses by all that a group has, so that a
/// shape is that of a group's calls of one communicator.
#[derive(Debug, Default, Clone)]
pub(crate) struct Shape(DefaultHasher);

impl Shape {
    /// Adds a call. `by_address`: buffers are registered, so that they count as well.
    pub(crate) fn add(&mut self, call: &Collective, by_address: bool) {
        let rank = call.function.names_rank().then_some(call.rank);
        let op = call.function.reduces().then_some(call.op);
        let in_place = call.function == Function::Broadcast || call.send == call.recv;
        (call.function, call.datatype, call.count, op, rank, in_place).hash(&mut self.0);
        if by_address {
            (call.send.0, call.recv.0).hash(&mut self.0);
        }
    }

    fn number(&self) -> u64 {
        self.0.finish()
    }
}

/// The shapes that a communicator has done.
#[derive(Default)]
pub(crate) struct Shapes {
    known: Mutex<HashSet<u64, BuildHasherDefault<DefaultHasher>>>,
    by_address: AtomicBool,
}

impl Shapes {
    pub(crate) fn has(&self, shape: &Shape) -> bool {
        self.known.lock().contains(&shape.number())
    }

    /// It has been done.
    pub(crate) fn add(&self, shape: &Shape) {
        let mut known = self.known.lock();
        if known.len() == MOST {
            known.clear();
        }
        known.insert(shape.number());
    }

    /// Whether addresses are part of a shape.
    pub(crate) fn by_address(&self) -> bool {
        self.by_address.load(Ordering::Relaxed)
    }

    /// What is known may be no longer true.
    pub(crate) fn forget(&self) {
        self.known.lock().clear();
    }

    /// Buffers have been registered, or are no more: what is known is no longer true.
    pub(crate) fn buffers_changed(&self) {
        self.by_address.store(true, Ordering::Relaxed);
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use outboard_wire::{DevicePtr, ObjectId, StreamId};

    use super::*;

    fn call(count: u64, send: u64) -> Collective {
        Collective {
            comm: ObjectId(1),
            function: Function::AllReduce,
            send: DevicePtr(send),
            recv: DevicePtr(64),
            count,
            datatype: 7,
            op: 0,
            rank: 0,
            stream: StreamId::LEGACY,
        }
    }

    fn shape(calls: &[Collective], by_address: bool) -> Shape {
        let mut shape = Shape::default();
        calls.iter().for_each(|call| shape.add(call, by_address));
        shape
    }

    #[test]
    fn only_what_was_done_is_known() {
        let shapes = Shapes::default();
        let one = shape(&[call(8, 16)], false);
        assert!(!shapes.has(&one));
        shapes.add(&one);
        assert!(shapes.has(&shape(&[call(8, 32)], false)), "addresses do not count");
        let max = Collective { op: 2, ..call(8, 16) };
        let gather = Collective { function: Function::AllGather, ..call(8, 16) };
        for other in [
            &[call(9, 16)][..],
            &[max],
            &[gather],
            &[call(8, 64)],
            &[call(8, 16), call(8, 16)],
            &[],
        ] {
            assert!(!shapes.has(&shape(other, false)), "{other:?}");
        }
        assert!(!shapes.has(&shape(&[call(8, 16)], true)));
        shapes.buffers_changed();
        assert!(shapes.by_address() && !shapes.has(&one));
    }

    #[test]
    fn the_root_counts_where_there_is_one() {
        let broadcast = |rank| Collective { function: Function::Broadcast, rank, ..call(8, 16) };
        let shapes = Shapes::default();
        shapes.add(&shape(&[broadcast(0)], false));
        shapes.add(&shape(&[call(8, 16)], false));
        assert!(!shapes.has(&shape(&[broadcast(1)], false)));
        let other = Collective { rank: 5, ..call(8, 16) };
        assert!(shapes.has(&shape(&[other], false)));
    }

    #[test]
    fn only_so_many_are_kept() {
        let shapes = Shapes::default();
        for count in 0..10_000 {
            shapes.add(&shape(&[call(count, 16)], false));
            assert!(shapes.known.lock().len() <= MOST);
        }
        assert!(shapes.has(&shape(&[call(9_999, 16)], false)));
    }
}
