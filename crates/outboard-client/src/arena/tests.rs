use std::collections::BTreeMap;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;

const A: ContextId = ContextId(1);
const B: ContextId = ContextId(2);
const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;
const BASE: u64 = 1 << 44;

fn arena(granules: u64, told: bool) -> Arena {
    let terms = Terms { address: BASE, bytes: granules * GRANULE, granule: GRANULE, told };
    let arena = Arena::new(terms, Arc::default());
    arena.context_opened(A, DeviceId::new(0));
    arena.context_opened(B, DeviceId::new(1));
    arena
}

/// Memory, from a server that maps all that it is asked for; the block that it mapped, if it was
/// asked.
fn take(arena: &Arena, ctx: ContextId, bytes: u64) -> Option<(DevicePtr, Option<Block>)> {
    match arena.take(ctx, bytes, |_| ()) {
        Taken::Memory(address) => Some((address, None)),
        Taken::Block(block) => Some((arena.mapped(block, bytes, |_| ()), Some(block))),
        Taken::Nothing => None,
    }
}

fn free(arena: &Arena, address: DevicePtr) -> Vec<Change> {
    let mut told = Vec::new();
    let _ = arena.free(address, |change| told.push(change));
    told
}

#[test]
fn small_allocations_of_a_context_share_a_block() {
    let arena = arena(8, false);
    let (first, block) = take(&arena, A, 1).unwrap();
    assert_eq!(block, Some(Block { ctx: A, address: DevicePtr(BASE), bytes: GRANULE }));
    assert_eq!(take(&arena, A, MIB - 1), Some((first.offset(512), None)));
    let (others, block) = take(&arena, B, 1).unwrap();
    assert!(others == DevicePtr(BASE + GRANULE) && block.is_some(), "another context's");
    assert!(take(&arena, A, MIB).unwrap().1.is_some(), "not a small one");
    assert_eq!(free(&arena, first), []);
    assert_eq!(take(&arena, A, 512), Some((first, None)), "what is free is used again");
    assert_eq!(free(&arena, first.offset(1)), [], "no allocation begins there");
}

#[test]
fn what_is_freed_is_kept_within_bounds() {
    let arena = arena(1024, false);
    let (first, block) = take(&arena, A, 3 * MIB).unwrap();
    assert_eq!(block.unwrap().bytes, 4 * MIB);
    assert_eq!(
        (free(&arena, first), arena.kept_beside(A), arena.kept_beside(B)),
        (vec![], 4 * MIB, 0)
    );
    assert_eq!(take(&arena, A, 4 * MIB), Some((first, None)), "as many pages");
    assert!(take(&arena, B, 4 * MIB).unwrap().1.is_some());
    assert_eq!(arena.kept_beside(A), 0);
    assert_eq!(free(&arena, first), []);
    let (large, _) = take(&arena, A, MOST_KEPT).unwrap();
    let gone = Change::Unmapped(Block { ctx: A, address: first, bytes: 4 * MIB });
    assert_eq!(free(&arena, large), [gone], "the oldest goes first");
    let (larger, block) = take(&arena, A, MOST_KEPT + 1).unwrap();
    assert_eq!(free(&arena, larger), [Change::Unmapped(block.unwrap())], "too large to be kept");
    let mut told = Vec::new();
    assert!(arena.give_all(|change| told.push(change)));
    assert_eq!(told, [Change::Unmapped(Block { ctx: A, address: large, bytes: MOST_KEPT })]);
    assert!(!arena.give_all(|_| panic!("nothing is kept")));
}

#[test]
fn what_lies_idle_or_is_wanted_goes_back() {
    let arena = arena(8, false);
    let mut now = Instant::now();
    let is_unwatched = |address| arena.free(address, |_| ()).unwrap().is_unwatched;
    let look = |now| {
        let mut told = 0;
        (arena.give_back_idle(now, |_| told += 1), told)
    };
    let [first, second] = [1, 2].map(|granules| take(&arena, A, granules * GRANULE).unwrap().0);
    assert_eq!(look(now), (None, 0), "nothing is kept");
    assert!(is_unwatched(first) && !is_unwatched(second));
    assert_eq!(look(now), (Some(IDLE), 0));
    now += IDLE / 2;
    assert_eq!(look(now), (Some(IDLE / 2), 0));
    let again = take(&arena, A, GRANULE).unwrap().0;
    now += IDLE;
    assert_eq!(look(now), (Some(IDLE), 0), "it was used meanwhile");
    now += IDLE;
    assert_eq!(look(now), (None, 1));
    assert!(is_unwatched(again));
    assert_eq!(look(now), (Some(IDLE), 0));
    arena.wanted.store(true, Ordering::Release);
    assert_eq!((look(now), arena.kept_beside(A)), ((None, 1), 0));
}

#[test]
fn a_block_that_is_kept_may_be_shared_next() {
    let arena = arena(8, false);
    let (whole, _) = take(&arena, A, 2 * MIB).unwrap();
    assert_eq!(free(&arena, whole), []);
    assert_eq!(take(&arena, A, 100), Some((whole, None)));
    assert_eq!(take(&arena, A, 100), Some((whole.offset(512), None)));
    assert_eq!((free(&arena, whole), free(&arena, whole.offset(512))), (vec![], vec![]));
    assert_eq!(arena.kept_beside(A), 2 * MIB);
    assert_eq!(take(&arena, A, 2 * MIB), Some((whole, None)));
}

#[test]
fn the_server_is_told_of_parts_that_do_not_touch() {
    let arena = arena(8, true);
    let mut told = Vec::new();
    let Taken::Block(block) = arena.take(A, 512, |change| told.push(change)) else { panic!() };
    let first = arena.mapped(block, 512, |change| told.push(change));
    let Taken::Memory(second) = arena.take(A, 100, |change| told.push(change)) else { panic!() };
    assert_eq!(told, [Change::Opened(A, first, 512), Change::Opened(A, second, 100)]);
    assert_eq!(second, first.offset(1024));
    assert_eq!(free(&arena, first), [Change::Closed(A, first, 512)]);
    let (one, _) = take(&arena, A, GRANULE).unwrap();
    let (next, _) = take(&arena, A, GRANULE).unwrap();
    assert!(next >= one.offset(2 * GRANULE), "blocks do not touch either");
}

#[test]
fn memory_that_others_have_is_used_for_nothing_else() {
    let arena = arena(8, false);
    let (first, block) = take(&arena, A, 100).unwrap();
    let (second, _) = take(&arena, A, 100).unwrap();
    arena.exported(second);
    let (third, another) = take(&arena, A, 100).unwrap();
    assert!(another.is_some() && third != second.offset(512), "not beside it");
    assert_eq!(free(&arena, second), [Change::Closed(A, second, 100)]);
    assert!(take(&arena, A, 100).unwrap().0 != second);
    assert_eq!(
        free(&arena, first),
        [Change::Closed(A, first, 100), Change::Unmapped(block.unwrap())]
    );
}

#[test]
fn late_allocations_stay_listed_until_they_are_free() {
    let arena = arena(8, false);
    let [first, second] = [(); 2].map(|()| take(&arena, A, 2 * GRANULE).unwrap().0);
    assert_eq!(arena.late(), None);
    arena.free_late(first);
    let (until, users) = arena.late().unwrap();
    assert_eq!((users.len(), arena.late().map(|(time, _)| time)), (2, Some(until)), "for others");
    // Noted while a thread waits for the work that uses the first.
    arena.free_late(second);
    let frees = |until| arena.free_noted(until, |_| ());
    assert!(frees(until).is_unwatched && arena.kept_beside(A) == 2 * GRANULE);
    let _ = frees(until);
    assert_eq!(arena.kept_beside(A), 2 * GRANULE);
    // The same address, noted anew.
    assert_eq!(take(&arena, A, 2 * GRANULE), Some((first, None)));
    arena.free_late(first);
    let _ = frees(until);
    assert_eq!(arena.kept_beside(A), 0);
    let _ = frees(arena.late().unwrap().0);
    assert_eq!((arena.late(), arena.kept_beside(A)), (None, 4 * GRANULE));
}

#[test]
fn a_context_ends_with_its_blocks() {
    let arena = arena(4, false);
    let small = take(&arena, A, 1).unwrap().0;
    let _ = take(&arena, A, 2 * GRANULE).unwrap();
    let others = take(&arena, B, GRANULE).unwrap().0;
    assert_eq!(take(&arena, B, GRANULE), None);
    assert_eq!(arena.users_of(small).map(|users| users.len()), Some(2));
    arena.free_late(small);
    let ending = arena.context_ends(A);
    assert_eq!((ending.len(), arena.late()), (2, None), "another's may lie there next");
    assert!(!arena.give_all(|_| panic!("nothing is said of what ends")));
    assert_eq!(take(&arena, B, GRANULE), None, "the server has them still");
    arena.ended(ending);
    assert_eq!((arena.users_of(small), arena.users_of(others)), (None, Some(vec![B])));
    assert_eq!(arena.take(A, 1, |_| ()), Taken::Nothing, "there is no such context");
    assert!(take(&arena, B, 4 * GRANULE).is_none() && take(&arena, B, 3 * GRANULE).is_some());
    assert!(take(&arena, B, u64::MAX).is_none());
}

#[test]
fn reservations_and_memory_do_not_meet() {
    let arena = arena(8, false);
    let hint = DevicePtr(BASE + 4 * GRANULE);
    assert_eq!(arena.reserve(GRANULE, 0, hint), Some(hint));
    assert_eq!(
        arena.reserve(GRANULE, 2 * GRANULE, hint),
        Some(DevicePtr(BASE + 6 * GRANULE)),
        "the least that will do"
    );
    assert_eq!(
        (take(&arena, A, 5 * GRANULE), arena.reserve(5 * GRANULE, 0, DevicePtr::NULL)),
        (None, None)
    );
    assert!(arena.unreserve(hint) && !arena.unreserve(hint));
    assert_eq!(take(&arena, A, 5 * GRANULE).unwrap().0, DevicePtr(BASE));
}

/// What a server has mapped, and what it has been told is allocated.
#[derive(Default)]
struct Server {
    blocks: BTreeMap<DevicePtr, Block>,
    parts: BTreeMap<DevicePtr, u64>,
    mapped: u64,
    /// How many more blocks it maps before it refuses one, if it does.
    refuses_after: Option<usize>,
    /// How many more messages it hears before its worker is killed, if it is.
    killed_after: Option<usize>,
}

impl Server {
    /// As much as it has.
    const MEMORY: u64 = 24 * GRANULE;

    /// Whether its worker is there to hear one more message.
    fn hears(&mut self) -> bool {
        match &mut self.killed_after {
            Some(0) => false,
            Some(more) => {
                *more -= 1;
                true
            }
            None => true,
        }
    }

    fn map(&mut self, block: Block) -> bool {
        if !self.hears() || self.mapped + block.bytes > Server::MEMORY {
            return false;
        }
        match &mut self.refuses_after {
            Some(0) => {
                self.refuses_after = None;
                return false;
            }
            Some(more) => *more -= 1,
            None => {}
        }
        let end = block.address.offset(block.bytes);
        assert!(
            block.address.0 >= BASE
                && end.0 <= BASE + 64 * GRANULE
                && block.address.0.is_multiple_of(GRANULE)
        );
        let below = self.blocks.range(..end).next_back();
        assert!(
            below.is_none_or(|(at, other)| at.offset(other.bytes) <= block.address),
            "blocks overlap"
        );
        self.mapped += block.bytes;
        self.blocks.insert(block.address, block);
        true
    }

    fn change(&mut self, change: Change) {
        if !self.hears() {
            return;
        }
        match change {
            Change::Opened(ctx, address, bytes) => {
                let (base, block) = self.blocks.range(..=address).next_back().expect("a block");
                assert!(
                    block.ctx == ctx && address.since(*base) + bytes <= block.bytes,
                    "outside of its block"
                );
                let below = self.parts.range(..address.offset(bytes)).next_back();
                assert!(
                    below.is_none_or(|(at, len)| at.offset(*len) < address),
                    "allocations meet"
                );
                self.parts.insert(address, bytes);
            }
            Change::Closed(_, address, bytes) => {
                assert_eq!(self.parts.remove(&address), Some(bytes))
            }
            Change::Unmapped(block) => {
                assert_eq!(self.blocks.remove(&block.address), Some(block));
                let inside =
                    self.parts.range(block.address..block.address.offset(block.bytes)).next();
                assert_eq!(inside, None, "something is allocated there");
                self.mapped -= block.bytes;
            }
        }
    }
}

/// A client and its server. Memory that runs out is out natively, too: what is kept does not show.
struct Session {
    arena: Arena,
    server: Mutex<Server>,
}

impl Session {
    fn new() -> Session {
        Session { arena: arena(64, true), server: Mutex::default() }
    }

    fn send_change(&self, change: Change) {
        self.server.lock().change(change);
    }

    fn allocate(&self, ctx: ContextId, bytes: u64) -> Option<DevicePtr> {
        let attempt = || match self.arena.take(ctx, bytes, |change| self.send_change(change)) {
            Taken::Memory(address) => Some(address),
            Taken::Nothing => None,
            Taken::Block(block) => {
                let mapped = self.server.lock().map(block);
                if !mapped {
                    self.arena.refused(block);
                    return None;
                }
                Some(self.arena.mapped(block, bytes, |change| self.send_change(change)))
            }
        };
        attempt()
            .or_else(|| self.arena.give_all(|change| self.send_change(change)).then(attempt)?)
    }

    /// Runs steps, frees all, and says how often there was no memory. What is allocated at the same
    /// time never overlaps.
    fn run(&self, steps: &[(bool, u64, bool, usize)]) -> usize {
        let (mut live, mut refused) = (Vec::<(DevicePtr, u64)>::new(), 0);
        for (second, bytes, frees, pick) in steps {
            if *frees && !live.is_empty() {
                let (address, _) = live.swap_remove(pick % live.len());
                let _ = self.arena.free(address, |change| self.send_change(change));
            } else {
                match self.allocate(if *second { B } else { A }, *bytes) {
                    Some(address) => {
                        let end = address.offset(*bytes);
                        assert!(
                            live.iter().all(|(at, len)| end <= *at || at.offset(*len) <= address),
                            "memory overlaps"
                        );
                        live.push((address, *bytes));
                    }
                    None => refused += 1,
                }
            }
        }
        for (address, _) in live {
            let _ = self.arena.free(address, |change| self.send_change(change));
        }
        refused
    }
}

#[test]
fn any_block_may_be_refused() {
    let sizes =
        [1, 100_000, MIB - 1, MIB, 3 * MIB, GRANULE, 700, 5 * GRANULE, 900_000, 900_000, 900_000];
    let steps: Vec<(bool, u64, bool, usize)> = sizes
        .iter()
        .flat_map(|bytes| {
            [(false, *bytes, false, 0), (true, *bytes, false, 0), (false, 1, true, 3)]
        })
        .collect();
    let mut reached = 0;
    for refused in 0.. {
        let session = Session::new();
        session.server.lock().refuses_after = Some(refused);
        let lacked = session.run(&steps);
        session.arena.give_all(|change| session.send_change(change));
        let server = session.server.lock();
        assert!(server.blocks.is_empty() && server.parts.is_empty(), "block {refused}");
        if server.refuses_after.is_some() {
            break;
        }
        drop(server);
        assert!(session.allocate(A, Server::MEMORY).is_some(), "block {refused}: memory is lost");
        reached += lacked;
    }
    assert!(reached > 3, "an allocation fails where nothing is kept that could be given back");
}

fn steps() -> impl Strategy<Value = Vec<(bool, u64, bool, usize)>> {
    let bytes = prop_oneof![1u64..5000, 1u64..MIB, MIB..5 * GRANULE];
    proptest::collection::vec((any::<bool>(), bytes, any::<bool>(), 0usize..64), 1..150)
}

proptest! {
    /// Allocations never meet, lie in blocks of their context, and nothing is lost: with everything
    /// freed, all memory can be had at once.
    #[test]
    fn memory_is_as_the_server_has_it(steps in steps()) {
        let session = Session::new();
        session.run(&steps);
        let kept = session.arena.kept_beside(A) + session.arena.kept_beside(B);
        prop_assert_eq!(kept, session.server.lock().mapped);
        prop_assert!(session.allocate(A, Server::MEMORY).is_some());
    }

    /// A worker that is killed, whatever it heard last, is noticed by whoever asks it for memory.
    /// What it had mapped is given out and taken back as before, and what it never mapped is given
    /// to nobody.
    #[test]
    fn a_worker_may_be_killed_at_any_step(steps in steps(), killed_after in 0usize..200) {
        let session = Session::new();
        session.server.lock().killed_after = Some(killed_after);
        session.run(&steps);
        let kept = session.arena.kept_beside(A) + session.arena.kept_beside(B);
        session.arena.give_all(|change| session.send_change(change));
        prop_assert_eq!(session.arena.kept_beside(A) + session.arena.kept_beside(B), 0);
        prop_assert!(kept <= Server::MEMORY);
        let killed = session.server.lock().killed_after == Some(0);
        prop_assert!(!killed || session.allocate(A, Server::MEMORY).is_none());
    }

    /// The same with several threads at once.
    #[test]
    fn threads_do_not_get_in_each_others_way(all in proptest::collection::vec(steps(), 2..4)) {
        let session = Session::new();
        std::thread::scope(|scope| {
            for steps in &all {
                scope.spawn(|| session.run(steps));
            }
        });
        session.arena.give_all(|change| session.send_change(change));
        let server = session.server.lock();
        prop_assert!(server.mapped == 0 && server.blocks.is_empty() && server.parts.is_empty());
        drop(server);
        prop_assert!(session.allocate(B, Server::MEMORY).is_some());
    }
}
