//! The counters of a thread.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::FUNCTIONS;

/// Counts of one function, written by one thread at a time.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) calls: AtomicU64,
    /// Calls that queued something and waited for no answer.
    pub(super) posted: AtomicU64,
    /// Calls that waited for an answer.
    pub(super) waited: AtomicU64,
    /// Answers waited for: a call may need several.
    pub(super) round_trips: AtomicU64,
    pub(super) to_device: AtomicU64,
    pub(super) from_device: AtomicU64,
    pub(super) nanoseconds: AtomicU64,
    pub(super) longest: AtomicU64,
    /// Of the waits for an answer; 0 if there was none.
    pub(super) shortest: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) last_error: AtomicU64,
}

/// The counts of one thread at a time.
pub(super) struct Block(Box<[Counts]>);

impl Block {
    /// All at zero. An array would be made on the stack first, which may have room for no more than
    /// that.
    fn new() -> Block {
        Block((0..FUNCTIONS).map(|_| Counts::default()).collect())
    }

    pub(super) fn of(&self, function: usize) -> &Counts {
        // Numbers come from our own tables.
        &self.0[function.min(FUNCTIONS - 1)]
    }
}

/// All blocks, and those that no thread has.
struct Blocks {
    all: Vec<&'static Block>,
    free: Vec<&'static Block>,
}

static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks { all: Vec::new(), free: Vec::new() });

fn blocks() -> MutexGuard<'static, Blocks> {
    BLOCKS.lock()
}

/// A block for the calling thread alone.
pub(super) fn take() -> &'static Block {
    let mut blocks = blocks();
    if let Some(block) = blocks.free.pop() {
        return block;
    }
    let block: &'static Block = Box::leak(Box::new(Block::new()));
    blocks.all.push(block);
    block
}

/// The calling thread ends: another thread reuses its block.
pub(super) fn hand_on(block: &'static Block) {
    blocks().free.push(block);
}

/// Adds to a count that only the calling thread writes.
#[inline]
pub(super) fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// What all threads counted of one function.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sum {
    pub(super) calls: u64,
    pub(super) posted: u64,
    pub(super) waited: u64,
    pub(super) round_trips: u64,
    pub(super) to_device: u64,
    pub(super) from_device: u64,
    pub(super) nanoseconds: u64,
    pub(super) longest: u64,
    pub(super) shortest: u64,
    pub(super) errors: u64,
    pub(super) last_error: u64,
}

/// A number that changes whenever a call has ended, or bytes have moved.
pub(super) fn everything() -> u64 {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let moved = |counts: &Counts| {
        get(&counts.calls)
            .wrapping_add(get(&counts.to_device))
            .wrapping_add(get(&counts.from_device))
    };
    blocks().all.iter().flat_map(|block| &*block.0).map(moved).fold(0, u64::wrapping_add)
}

/// Adds up what all threads have counted of a function so far.
pub(super) fn sum(function: usize) -> Sum {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut sum = Sum::default();
    for block in &blocks().all {
        let counts = block.of(function);
        sum.calls += get(&counts.calls);
        sum.posted += get(&counts.posted);
        sum.waited += get(&counts.waited);
        sum.round_trips += get(&counts.round_trips);
        sum.to_device += get(&counts.to_device);
        sum.from_device += get(&counts.from_device);
        sum.nanoseconds += get(&counts.nanoseconds);
        sum.longest = sum.longest.max(get(&counts.longest));
        sum.shortest = match (sum.shortest, get(&counts.shortest)) {
            (0, one) | (one, 0) => one,
            (one, other) => one.min(other),
        };
        sum.errors += get(&counts.errors);
        if get(&counts.errors) > 0 {
            sum.last_error = get(&counts.last_error);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_stack_has_room_for_what_takes_a_block() {
        let small = std::thread::Builder::new().stack_size(32 << 10);
        let take = || {
            let block = take();
            let counts = block.of(FUNCTIONS);
            add(&counts.calls, 1);
            assert_eq!(counts.calls.load(Ordering::Relaxed), 1);
            counts.calls.store(0, Ordering::Relaxed);
            hand_on(block);
        };
        small.spawn(take).expect("a thread").join().expect("it has room");
    }
}
