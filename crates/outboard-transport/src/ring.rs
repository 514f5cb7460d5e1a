//! A ring of bytes in memory that two processes share: one writes, the other reads.
//!
//! Each side keeps its own position to itself and believes nothing that it reads of the other's: a
//! position outside of what can be is an error. A side with nothing to do may sleep: it first says
//! so in the ring, and the other side wakes it. [`Side::sleep`] and [`Side::moved`] are the two
//! halves of that: each makes its store visible before it looks at the other's, so that at least
//! one of them sees the other.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The atomic numbers that the protocol is written for; tests run it with others.
pub(crate) trait Model: Default {
    type Position: Number<u64> + Default;
    type Count: Number<u32> + Default;
    fn fence();
}

/// An atomic number.
pub(crate) trait Number<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn add(&self, value: T);
    fn sub(&self, value: T);
}

/// The machine's own.
#[derive(Default)]
pub(crate) struct Machine;

impl Model for Machine {
    type Position = AtomicU64;
    type Count = AtomicU32;
    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

macro_rules! number {
    ($atomic:ty, $number:ty) => {
        impl Number<$number> for $atomic {
            #[inline]
            fn load(&self, order: Ordering) -> $number {
                <$atomic>::load(self, order)
            }
            #[inline]
            fn store(&self, value: $number, order: Ordering) {
                <$atomic>::store(self, value, order);
            }
            fn add(&self, value: $number) {
                self.fetch_add(value, Ordering::Relaxed);
            }
            fn sub(&self, value: $number) {
                self.fetch_sub(value, Ordering::Relaxed);
            }
        }
    };
}
number!(AtomicU64, u64);
number!(AtomicU32, u32);

/// What one side says to the other. All zero at first. A cache line of its own, and the one that
/// processors fetch along with it.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Side<M: Model> {
    /// Bytes written, or read, since the start.
    position: M::Position,
    /// Threads that sleep until the other side moves.
    asleep: M::Count,
    /// Whether this side has ended: 0 if not.
    closed: M::Count,
}

/// Both sides of a ring.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Sides<M: Model> {
    pub(crate) writer: Side<M>,
    pub(crate) reader: Side<M>,
}

/// A part of the ring's bytes: where it begins, and how long it is.
pub(crate) type Part = (usize, usize);

fn broken() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the other side has put nonsense into the shared ring",
    )
}

impl<M: Model> Side<M> {
    /// Says that a thread is about to sleep until the other side moves. It must look at that side
    /// once more before it does.
    pub(crate) fn sleep(&self) {
        self.asleep.add(1);
        M::fence();
    }

    /// The thread is awake again.
    pub(crate) fn wake(&self) {
        self.asleep.sub(1);
    }

    /// Publishes this side's new position; returns whether to wake a thread of the `other` side.
    #[inline]
    pub(crate) fn moved(&self, position: u64, other: &Side<M>) -> bool {
        self.position.store(position, Ordering::Release);
        M::fence();
        other.asleep.load(Ordering::Relaxed) != 0
    }

    /// Publishes that this side has ended. The caller wakes the threads that sleep for it.
    pub(crate) fn close(&self) {
        self.closed.store(1, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }
}

impl<M: Model> Sides<M> {
    /// How many bytes there are to read for a reader at `position`, in a ring of `size` bytes.
    #[inline]
    pub(crate) fn filled(&self, position: u64, size: usize) -> io::Result<usize> {
        let filled = self.writer.position.load(Ordering::Acquire).wrapping_sub(position);
        if filled <= size as u64 { Ok(filled as usize) } else { Err(broken()) }
    }

    /// How much room there is for a writer at `position`, in a ring of `size` bytes.
    #[inline]
    pub(crate) fn room(&self, position: u64, size: usize) -> io::Result<usize> {
        let filled = position.wrapping_sub(self.reader.position.load(Ordering::Acquire));
        if filled <= size as u64 { Ok(size - filled as usize) } else { Err(broken()) }
    }
}

/// The parts of a ring of `size` bytes, a power of two, that `len` bytes from `position` on lie in.
#[inline]
pub(crate) fn parts(position: u64, len: usize, size: usize) -> [Part; 2] {
    let start = (position & (size as u64 - 1)) as usize;
    let first = len.min(size - start);
    [(start, first), (0, len - first)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_that_cannot_be_are_refused() {
        let sides = Sides::<Machine>::default();
        assert_eq!((sides.filled(0, 64).unwrap(), sides.room(0, 64).unwrap()), (0, 64));
        sides.writer.moved(64, &sides.reader);
        assert_eq!((sides.filled(0, 64).unwrap(), sides.room(64, 64).unwrap()), (64, 0));
        for position in [65, u64::MAX, 1 << 63] {
            sides.writer.moved(position, &sides.reader);
            assert!(sides.filled(0, 64).is_err(), "{position}");
        }
        for position in [1, u64::MAX - 64, 1 << 40] {
            sides.reader.moved(position, &sides.writer);
            assert!(sides.room(0, 64).is_err(), "{position}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_inside_and_add_up(position: u64, len in 0_usize..=64) {
            let [first, second] = parts(position, len, 64);
            prop_assert_eq!(first.1 + second.1, len);
            prop_assert!(first.0 + first.1 <= 64 && second.1 <= first.0);
        }
    }

    /// The protocol as loom's memory model sees it.
    #[derive(Default)]
    struct Loom;

    impl Model for Loom {
        type Position = loom::sync::atomic::AtomicU64;
        type Count = loom::sync::atomic::AtomicU32;
        fn fence() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
    number!(loom::sync::atomic::AtomicU64, u64);
    number!(loom::sync::atomic::AtomicU32, u32);

    /// A ring of two bytes between two threads, each of which sleeps when it cannot go on. Loom's
    /// cells fail the test if a byte is read and written at once; that a wake-up is never missed
    /// shows in that the model ends.
    struct Between {
        sides: Sides<Loom>,
        bytes: [loom::cell::UnsafeCell<u8>; 2],
        to_reader: loom::sync::Notify,
        to_writer: loom::sync::Notify,
    }

    const SIZE: usize = 2;
    const SENT: u64 = 3;

    impl Between {
        fn write(&self) {
            let mut position = 0;
            while position < SENT {
                if self.sides.room(position, SIZE).unwrap() == 0 {
                    self.sides.writer.sleep();
                    if self.sides.room(position, SIZE).unwrap() == 0 {
                        self.to_writer.wait();
                    }
                    self.sides.writer.wake();
                    continue;
                }
                let [(at, _), _] = parts(position, 1, SIZE);
                // SAFETY: loom checks that nobody else uses the cell meanwhile.
                self.bytes[at].with_mut(|byte| unsafe { *byte = position as u8 + 1 });
                position += 1;
                if self.sides.writer.moved(position, &self.sides.reader) {
                    self.to_reader.notify();
                }
            }
        }

        /// Publishes its position each time it has read `unsaid` further bytes.
        fn read(&self, unsaid: u64) {
            let (mut position, mut said) = (0, 0);
            while position < SENT {
                if self.sides.filled(position, SIZE).unwrap() == 0 {
                    self.sides.reader.sleep();
                    if self.sides.filled(position, SIZE).unwrap() == 0 {
                        self.to_reader.wait();
                    }
                    self.sides.reader.wake();
                    continue;
                }
                let [(at, _), _] = parts(position, 1, SIZE);
                // SAFETY: as above.
                assert_eq!(self.bytes[at].with(|byte| unsafe { *byte }), position as u8 + 1);
                position += 1;
                if position - said < unsaid {
                    continue;
                }
                said = position;
                if self.sides.reader.moved(position, &self.sides.writer) {
                    self.to_writer.notify();
                }
            }
        }
    }

    fn between(unsaid: u64) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let between = loom::sync::Arc::new(Between {
                sides: Sides::default(),
                bytes: [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)],
                to_reader: loom::sync::Notify::new(),
                to_writer: loom::sync::Notify::new(),
            });
            let there = loom::sync::Arc::clone(&between);
            let reader = loom::thread::spawn(move || there.read(unsaid));
            between.write();
            reader.join().unwrap();
        });
    }

    #[test]
    fn no_byte_and_no_wakeup_is_lost() {
        between(1);
    }

    /// Up to a byte less than the ring has, so that an empty one always has room.
    #[test]
    fn nor_if_the_reader_says_rarely_how_far_it_is() {
        between(SIZE as u64);
    }
}
