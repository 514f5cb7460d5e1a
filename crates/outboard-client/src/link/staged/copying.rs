//! One transfer through shared memory: several threads copy its chunks between the program's memory
//! and the slots.
//!
//! Threads take chunks in order, so that the device can continue as early as possible. The thread
//! that copies the last chunk of a group sets the group's flag, on which the device waits; the
//! device sets the others.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use outboard_session::groups::{self, Flag, Groups};
use outboard_transport::PEER_CHECK;

use super::super::bulk::direction::Direction;
use super::super::bulk::host_bytes::HostBytes;
use super::super::error::LinkError;
use super::super::shared::Shared;
use super::areas::Use;
use super::crew::Crew;
use super::pauses::pause_after;

/// Where the flags and slots are, how the bytes lie, and how far the copy is.
#[derive(Debug)]
pub(super) struct Copying {
    /// Keeps the shared memory.
    shared: Arc<Shared>,
    flags: *mut u8,
    groups: Groups,
    direction: Direction,
    place: HostBytes,
    /// Copies of its stream that write to the same memory: their bytes must be there first.
    behind: Box<[Weak<Copying>]>,
    /// The next chunk to be copied.
    next: AtomicU32,
    /// Chunks of the group in each slot that have been copied.
    copied: Box<[AtomicU32]>,
    /// Threads that copy a chunk, or look whether they can.
    busy: AtomicU32,
    done: AtomicU32,
}

// SAFETY: the addresses are of shared memory, which `shared` keeps, and of the program's, which
// whoever runs the copy keeps until it has ended. Flags are accessed as atomics; a chunk's bytes on
// either side belong to the one thread that has taken its number.
unsafe impl Send for Copying {}
// SAFETY: as above.
unsafe impl Sync for Copying {}

/// The next step of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Copied,
    /// The device has not come so far.
    NotReady,
    /// All chunks have been taken.
    Finished,
}

/// A number that is neither that of a recent transfer nor likely among the bytes of one.
fn next_use() -> u32 {
    static USES: AtomicU32 = AtomicU32::new(1);
    USES.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9)
}

impl Copying {
    /// # Safety
    /// `flags` begins shared memory of `shared`, with room for the groups' flags and slots, that
    /// nobody else uses until the copy has ended.
    pub(super) unsafe fn new(
        shared: Arc<Shared>,
        flags: *mut u8,
        groups: Groups,
        direction: Direction,
        place: HostBytes,
        behind: Box<[Weak<Copying>]>,
    ) -> Arc<Copying> {
        let copying = Copying {
            shared,
            flags,
            groups,
            direction,
            place,
            behind,
            next: AtomicU32::new(0),
            copied: (0..groups.slots()).map(|_| AtomicU32::new(0)).collect(),
            busy: AtomicU32::new(0),
            done: AtomicU32::new(0),
        };
        // Before the flags change: until then they are those of an earlier transfer.
        copying.word(groups::USE).store(next_use(), Ordering::SeqCst);
        for index in 0..=groups.flag(Flag::Failed) {
            copying.word(index).store(0, Ordering::Release);
        }
        Arc::new(copying)
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        // SAFETY: within the room for flags, aligned, and only ever accessed as an atomic, here and
        // by the worker, or by the device.
        unsafe { AtomicU32::from_ptr(self.flags.cast::<u32>().add(index)) }
    }

    fn is_set(&self, flag: Flag, value: u32) -> bool {
        self.word(self.groups.flag(flag)).load(Ordering::Acquire) >= value
    }

    /// Copies a chunk, if one can be copied.
    pub(super) fn step(&self) -> Step {
        // Before a chunk is taken: a thread that ends the copy early waits for the threads that may
        // have taken a chunk.
        self.busy.fetch_add(1, Ordering::SeqCst);
        let step = self.copy_next();
        self.busy.fetch_sub(1, Ordering::SeqCst);
        step
    }

    fn copy_next(&self) -> Step {
        let parts = &self.groups;
        let chunk = loop {
            let chunk = self.next.load(Ordering::SeqCst);
            if chunk >= parts.cut().count() {
                return Step::Finished;
            }
            let (slot, round) = parts.slot_and_round(parts.of(chunk));
            let ready = match self.direction {
                Direction::Up => round == 1 || self.is_set(Flag::Free(slot), round - 1),
                // In this order: a thread that abandons a copy sets the last of its flags.
                Direction::Down => self.is_set(Flag::Full(slot), round) && !self.has_failed(),
            };
            if !ready || self.is_behind() {
                return Step::NotReady;
            }
            if self
                .next
                .compare_exchange(chunk, chunk + 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
            {
                break chunk;
            }
        };
        let group = parts.of(chunk);
        let (slot, round) = parts.slot_and_round(group);
        // SAFETY: the chunk's place among the slots lies within the shared memory.
        let staged = unsafe { self.flags.add(groups::FLAGS + self.groups.chunk_at(chunk)) };
        let place = self.place.at(parts.cut().offset(chunk));
        let len = parts.cut().len_of(chunk) as usize;
        // SAFETY: the program's memory is valid, by the contract of whoever runs the copy; the slot
        // is this thread's, since the device has done its part and nobody else has this chunk's
        // number.
        unsafe {
            match self.direction {
                Direction::Up => place.gather(staged, len),
                Direction::Down => place.scatter(staged, len),
            }
        }
        if self.copied[slot].fetch_add(1, Ordering::AcqRel) + 1 == parts.chunks(group).len() as u32
        {
            self.copied[slot].store(0, Ordering::Release);
            let flag =
                if self.direction == Direction::Up { Flag::Full(slot) } else { Flag::Free(slot) };
            self.word(parts.flag(flag)).store(round, Ordering::Release);
        }
        if self.done.fetch_add(1, Ordering::AcqRel) + 1 == parts.cut().count() {
            let (counters, bytes) = (&self.shared.counters, parts.cut().len());
            match self.direction {
                Direction::Up => counters.bulk_sent.add(bytes),
                Direction::Down => counters.bulk_received.add(bytes),
            }
        }
        Step::Copied
    }

    /// Whether the program's memory is still an earlier copy's.
    fn is_behind(&self) -> bool {
        self.behind.iter().filter_map(Weak::upgrade).any(|earlier| !earlier.has_ended())
    }

    /// How many helpers are of use for what is left. The calling thread has copied two chunks
    /// before another thread has woken up.
    fn useful_helpers(&self) -> usize {
        let count = self.groups.cut().count();
        ((count - self.next.load(Ordering::Relaxed).min(count)) / 2) as usize
    }

    /// Asks for help with what is left.
    pub(super) fn call(self: &Arc<Copying>, crew: &Arc<Crew>) {
        crew.invite(self.useful_helpers(), self);
    }

    /// Copies all chunks, with the crew's help. Afterwards no thread uses the program's memory any
    /// more, whatever the result. Several threads may do so at once.
    pub(super) fn run(self: &Arc<Copying>, crew: &Arc<Crew>) -> Result<(), LinkError> {
        self.call(crew);
        let mut wait = Wait::new(&self.shared);
        let result = loop {
            match self.step() {
                Step::Copied if wait.was_long() => {
                    self.call(crew);
                    wait = Wait::new(&self.shared);
                }
                Step::Copied => wait = Wait::new(&self.shared),
                Step::Finished => break self.check(),
                Step::NotReady => {
                    if let Err(error) = self.check().map(|()| wait.turn()) {
                        break Err(error);
                    }
                }
            }
        };
        self.stop();
        if self.has_come() { Ok(()) } else { Err(result.err().unwrap_or(LinkError::Cancelled)) }
    }

    /// Takes no further chunk, and waits for those that were taken to be copied, which takes
    /// microseconds. Afterwards nobody uses the program's memory any more.
    pub(super) fn stop(&self) {
        self.next.fetch_max(self.groups.cut().count(), Ordering::SeqCst);
        while self.busy.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }

    /// Whether nobody uses the program's memory any more, nor will.
    pub(super) fn has_ended(&self) -> bool {
        // In this order: a thread counts as busy before it takes a chunk.
        self.next.load(Ordering::SeqCst) >= self.groups.cut().count()
            && self.busy.load(Ordering::SeqCst) == 0
    }

    /// Whether all bytes have been copied.
    pub(super) fn has_come(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.groups.cut().count()
    }

    /// Whether it can still come to an end.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        if self.shared.is_lost() {
            return Err(self.shared.lost());
        }
        if self.has_failed() { Err(LinkError::Cancelled) } else { Ok(()) }
    }

    fn has_failed(&self) -> bool {
        self.is_set(Flag::Failed, 1)
    }

    /// Waits until the device has done all of its part.
    pub(super) fn taken(&self) -> Result<(), LinkError> {
        let mut wait = Wait::new(&self.shared);
        while !self.is_over() {
            self.check()?;
            wait.turn();
        }
        self.check()
    }

    /// Whether the device has done all of its part.
    pub(super) fn is_over(&self) -> bool {
        let (slot, round) = self.groups.slot_and_round(self.groups.count() - 1);
        self.is_set(
            if self.direction == Direction::Up { Flag::Free(slot) } else { Flag::Full(slot) },
            round,
        )
    }

    /// The program knows that the device has done it, and its memory is its own again. A worker
    /// that keeps to the rules has said so by the flags.
    pub(super) fn is_known_to_be_done(&self) {
        if self.next.load(Ordering::SeqCst) < self.groups.cut().count() && !self.has_failed() {
            self.shared.lose("the server says that a copy is done whose bytes it has not moved");
        }
        self.stop();
    }

    /// Which way it goes.
    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// What it is a copy over.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How its bytes lie in the shared memory.
    pub(super) fn groups(&self) -> Groups {
        self.groups
    }

    /// Nobody copies any more: the rest of a copy from the device is skipped, so that the stream
    /// continues.
    pub(super) fn let_pass(&self) {
        if self.direction == Direction::Down && !self.has_come() {
            for slot in 0..self.groups.slots() as usize {
                self.word(self.groups.flag(Flag::Free(slot)))
                    .store(i32::MAX as u32, Ordering::Release);
            }
        }
    }

    /// Whether the device still uses the shared memory.
    pub(super) fn state(&self) -> Use {
        match self.word(self.groups.flag(Flag::Failed)).load(Ordering::Acquire) {
            0 => {}
            groups::NOT_QUEUED => return Use::Over,
            _ => return Use::Unknown,
        }
        if self.has_come() && self.is_over() { Use::Over } else { Use::GoesOn }
    }
}

/// A wait for the device: it looks at first, and sleeps then.
pub(super) struct Wait<'a> {
    shared: &'a Shared,
    since: Option<Instant>,
    /// How much of it has passed when the worker is next looked after.
    look: Duration,
}

impl<'a> Wait<'a> {
    pub(super) fn new(shared: &'a Shared) -> Wait<'a> {
        Wait { shared, since: None, look: PEER_CHECK }
    }

    pub(super) fn turn(&mut self) {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        // The device takes tens of microseconds for a group: as long as it goes on, sleeping costs
        // more.
        if waited < self.shared.config.spin * 2 {
            std::hint::spin_loop();
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause_after(waited));
            if waited >= self.look {
                self.look = waited + PEER_CHECK;
                self.shared.check_for_life(PEER_CHECK);
            }
        }
    }

    fn was_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > self.shared.config.spin * 2)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use outboard_session::chunks::Cut;
    use outboard_transport::pipe;
    use proptest::prelude::*;

    use super::*;
    use crate::link::{Config, Link};

    /// Staging memory, and memory in the role of the device's.
    pub(in super::super) struct Fixture {
        pub(in super::super) link: Link,
        staging: Vec<u32>,
        pub(in super::super) device: Vec<u8>,
        groups: Groups,
    }

    pub(in super::super) fn fixture(direction: Direction, len: u64, chunk: u32) -> Fixture {
        let (client, _server) = pipe::pair().unwrap();
        let groups = Groups::shared(Cut::new(len, chunk).unwrap(), direction == Direction::Up);
        let staging = vec![u32::MAX; (groups::FLAGS + groups.staging()) / 4 + 1];
        let config = Config { spin: Duration::from_micros(5), ..Config::default() };
        let link = Link::start(client, config, Box::new(|_, _| ())).unwrap();
        std::mem::forget(_server);
        Fixture { link, staging, device: vec![0; len as usize], groups }
    }

    impl Fixture {
        fn copying(&mut self, direction: Direction, host: *mut u8) -> Arc<Copying> {
            self.copying_behind(direction, host, &[])
        }

        pub(in super::super) fn copying_behind(
            &mut self,
            direction: Direction,
            host: *mut u8,
            behind: &[&Arc<Copying>],
        ) -> Arc<Copying> {
            let behind = behind.iter().map(|earlier| Arc::downgrade(earlier)).collect();
            let flags = self.staging.as_mut_ptr().cast();
            // SAFETY: tests keep the fixture until the copy has ended.
            unsafe {
                Copying::new(
                    Arc::clone(&self.link.shared),
                    flags,
                    self.groups,
                    direction,
                    HostBytes::from(host),
                    behind,
                )
            }
        }
    }

    /// Does what the device does with a stream's operations, as far as group `end`.
    pub(in super::super) fn device(copying: &Copying, memory: *mut u8, end: u32) {
        let (groups, up) = (copying.groups, copying.direction == Direction::Up);
        for group in 0..end {
            let (slot, round) = groups.slot_and_round(group);
            let (at, len) = groups.bytes(group);
            let ready = if up { (Flag::Full(slot), round) } else { (Flag::Free(slot), round - 1) };
            while !copying.is_set(ready.0, ready.1) {
                std::thread::yield_now();
            }
            // SAFETY: the fixture's memory; the flags say that the slot is the device's.
            unsafe {
                let (here, there) = (
                    memory.add(at as usize),
                    copying.flags.add(groups::FLAGS + groups.group_at(group)),
                );
                let (from, to) = if up { (there, here) } else { (here, there) };
                core::ptr::copy_nonoverlapping(from.cast_const(), to, len);
            }
            let done = if up { Flag::Free(slot) } else { Flag::Full(slot) };
            copying.word(groups.flag(done)).store(round, Ordering::Release);
        }
    }

    fn copy(direction: Direction, len: u64, chunk: u32, helpers: usize) {
        let mut fixture = fixture(direction, len, chunk);
        let pattern: Vec<u8> = (0..len).map(|i| (i % 251) as u8 ^ (i >> 16) as u8).collect();
        let mut host =
            if direction == Direction::Up { pattern.clone() } else { vec![0; len as usize] };
        if direction == Direction::Down {
            fixture.device.copy_from_slice(&pattern);
        }
        let copying = fixture.copying(direction, host.as_mut_ptr());
        let (crew, memory) = (Crew::new(helpers), fixture.device.as_mut_ptr() as usize);
        std::thread::scope(|scope| {
            let other = Arc::clone(&copying);
            scope.spawn(move || device(&other, memory as *mut u8, other.groups.count()));
            copying.run(&crew).unwrap();
            copying.taken().unwrap();
        });
        assert_eq!(copying.state(), Use::Over);
        assert!(host == pattern && fixture.device == pattern, "the bytes differ");
        crew.end();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Bytes of any length arrive, with any number of helpers, more than the slots hold too.
        #[test]
        fn bytes_arrive(len in 1u64..(40 << 20), chunk in (64u32 << 10)..(1 << 20), helpers in 0usize..4, up: bool) {
            copy(if up { Direction::Up } else { Direction::Down }, len, chunk, helpers);
        }
    }

    #[test]
    fn a_copy_whose_stream_dies_ends_and_leaves_the_program_s_memory_alone() {
        for direction in [Direction::Up, Direction::Down] {
            let mut fixture = fixture(direction, 64 << 20, 256 << 10);
            let mut host = vec![0_u8; 64 << 20];
            let copying = fixture.copying(direction, host.as_mut_ptr());
            let (crew, memory) = (Crew::new(2), fixture.device.as_mut_ptr() as usize);
            std::thread::scope(|scope| {
                let other = Arc::clone(&copying);
                scope.spawn(move || {
                    device(&other, memory as *mut u8, 5);
                    std::thread::sleep(Duration::from_millis(30));
                    other
                        .word(other.groups.flag(Flag::Failed))
                        .store(groups::BROKE_OFF, Ordering::Release);
                });
                assert_eq!(copying.run(&crew), Err(LinkError::Cancelled));
            });
            assert_eq!((copying.step(), copying.state()), (Step::Finished, Use::Unknown));
            crew.end();
        }
    }

    #[test]
    fn a_copy_behind_another_waits_for_its_bytes() {
        let (first, second) = (1_u8, 2_u8);
        let mut host = vec![0_u8; 3 << 20];
        let [mut one, mut two] = [(); 2].map(|()| fixture(Direction::Down, 3 << 20, 256 << 10));
        let earlier = one.copying(Direction::Down, host.as_mut_ptr());
        let later = two.copying_behind(Direction::Down, host.as_mut_ptr(), &[&earlier]);
        one.device.fill(first);
        two.device.fill(second);
        // Whichever the device is with first.
        device(&later, two.device.as_mut_ptr(), later.groups.count());
        assert_eq!(later.step(), Step::NotReady);
        device(&earlier, one.device.as_mut_ptr(), earlier.groups.count());
        assert_eq!((later.step(), earlier.step()), (Step::NotReady, Step::Copied));
        earlier.run(&Crew::new(0)).unwrap();
        assert!(host.iter().all(|byte| *byte == first) && earlier.has_ended());
        later.run(&Crew::new(0)).unwrap();
        assert!(host.iter().all(|byte| *byte == second) && later.has_ended());
    }

    #[test]
    fn a_server_that_says_too_early_that_a_copy_is_done_loses_its_client() {
        for (direction, groups_done) in [(Direction::Up, 0), (Direction::Down, 2)] {
            let mut fixture = fixture(direction, 32 << 20, 256 << 10);
            let mut host = vec![7_u8; 32 << 20];
            let copying = fixture.copying(direction, host.as_mut_ptr());
            device(&copying, fixture.device.as_mut_ptr(), groups_done);
            while copying.step() == Step::Copied {}
            assert!(!copying.has_ended());
            copying.is_known_to_be_done();
            assert!(!fixture.link.is_alive() && copying.has_ended());
            assert_eq!(copying.step(), Step::Finished, "the memory is left alone");
        }
    }

    #[test]
    fn a_lost_link_ends_a_copy() {
        let mut fixture = fixture(Direction::Down, 4 << 20, 256 << 10);
        let mut host = vec![0_u8; 4 << 20];
        let copying = fixture.copying(Direction::Down, host.as_mut_ptr());
        std::thread::scope(|scope| {
            let running = scope.spawn(|| copying.run(&Crew::new(1)));
            std::thread::sleep(Duration::from_millis(10));
            fixture.link.close();
            assert!(matches!(running.join().unwrap(), Err(LinkError::Lost(_))));
        });
    }
}
