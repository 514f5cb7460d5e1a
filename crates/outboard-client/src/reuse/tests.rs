use proptest::prelude::*;

use std::collections::HashMap;

use super::*;

const CTX: ContextId = ContextId(1);
const POOL: Pool = Pool::Default(DeviceId::new(0));

#[derive(Debug, Clone)]
enum Step {
    Allocate { pool: usize, stream: StreamId, size: usize },
    Free { which: usize, stream: StreamId },
    FreeAtOnce { which: usize },
    Wait,
    Threshold { pool: usize, bytes: u64 },
    GivePool { pool: usize },
    GiveAll,
    EndStream { stream: StreamId },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2usize, (1..4u64).prop_map(StreamId), 0..SIZES.len()).prop_map(|(pool, stream, size)| Step::Allocate { pool, stream, size }),
        4 => (any::<usize>(), (1..4u64).prop_map(StreamId)).prop_map(|(which, stream)| Step::Free { which, stream }),
        1 => any::<usize>().prop_map(|which| Step::FreeAtOnce { which }),
        1 => Just(Step::Wait),
        1 => (0..2usize, prop_oneof![Just(0), Just(100 << 20), Just(u64::MAX)])
            .prop_map(|(pool, bytes)| Step::Threshold { pool, bytes }),
        1 => (0..2usize).prop_map(|pool| Step::GivePool { pool }),
        1 => Just(Step::GiveAll),
        1 => (1..4u64).prop_map(StreamId).prop_map(|stream| Step::EndStream { stream }),
    ]
}

const SIZES: [u64; 3] = [512, 3 << 20, 80 << 20];
const POOLS: [Pool; 2] = [POOL, Pool::Made(ObjectId(7))];

/// The server's side: what it has allocated, and in which stream each block that the program freed
/// was freed.
#[derive(Default)]
struct Server {
    last: u64,
    /// Address to pool and size.
    blocks: HashMap<DevicePtr, (usize, u64)>,
    live: Vec<DevicePtr>,
    freed: HashMap<DevicePtr, StreamId>,
    most: [u64; 2],
    threshold: [u64; 2],
}

impl Server {
    fn free(&mut self, block: &Block) {
        assert_eq!(
            self.freed.remove(&block.address),
            Some(block.stream),
            "freed in the stream that the program named"
        );
        assert!(self.blocks.remove(&block.address).is_some());
    }

    fn bytes(&self, pool: usize, which: impl Fn(&DevicePtr) -> bool) -> u64 {
        self.blocks
            .iter()
            .filter(|(at, (of, _))| *of == pool && which(at))
            .map(|(_, (_, bytes))| bytes)
            .sum()
    }

    fn live(&self, pool: usize) -> u64 {
        self.bytes(pool, |at| self.live.contains(at))
    }
}

proptest! {
    /// No block is given out twice, or in another stream's order, or to another size; each is freed
    /// once; and no more is held than may be.
    #[test]
    fn blocks_are_whose_they_should_be(steps in proptest::collection::vec(step(), 1..80)) {
        let (reuse, mut server) = (Reuse::default(), Server::default());
        for step in steps {
            match step {
                Step::Allocate { pool, stream, size } => {
                    let bytes = SIZES[size];
                    if let Some(address) = reuse.take(POOLS[pool], CTX, stream, bytes) {
                        prop_assert_eq!(server.freed.remove(&address), Some(stream));
                        prop_assert_eq!(server.blocks[&address], (pool, bytes));
                        server.live.push(address);
                    } else {
                        reuse.make_room(POOLS[pool], bytes, |block| server.free(block));
                        server.last += 1;
                        let address = DevicePtr(server.last);
                        server.blocks.insert(address, (pool, bytes));
                        server.live.push(address);
                        reuse.allocated(POOLS[pool], CTX, address, bytes);
                    }
                    server.most[pool] = server.most[pool].max(server.live(pool));
                    prop_assert!(server.bytes(pool, |_| true) <= server.most[pool] + SLACK);
                }
                Step::Free { which, stream } if !server.live.is_empty() => {
                    let address = server.live.swap_remove(which % server.live.len());
                    if reuse.keep(CTX, stream, address) {
                        server.freed.insert(address, stream);
                    } else {
                        server.blocks.remove(&address);
                    }
                }
                Step::FreeAtOnce { which } if !server.live.is_empty() => {
                    let address = server.live.swap_remove(which % server.live.len());
                    reuse.release(address);
                    server.blocks.remove(&address);
                }
                Step::Free { .. } | Step::FreeAtOnce { .. } => {}
                Step::Wait => {
                    reuse.before_wait(|block| server.free(block));
                    for (pool, threshold) in server.threshold.into_iter().enumerate() {
                        prop_assert!(server.bytes(pool, |_| true) <= threshold.max(server.live(pool)));
                    }
                }
                Step::Threshold { pool, bytes } => {
                    server.threshold[pool] = bytes;
                    reuse.set_threshold(POOLS[pool], bytes);
                }
                Step::GivePool { pool } => {
                    reuse.give_pool(POOLS[pool], |block| server.free(block));
                    prop_assert_eq!(server.bytes(pool, |_| true), server.live(pool));
                }
                Step::GiveAll => {
                    let any = !server.freed.is_empty();
                    prop_assert_eq!(reuse.give_all(|block| server.free(block)), any);
                    prop_assert!(server.freed.is_empty());
                }
                Step::EndStream { stream } => {
                    reuse.give_stream(CTX, stream, |block| server.free(block));
                    prop_assert!(server.freed.values().all(|of| *of != stream));
                }
            }
            prop_assert_eq!(server.blocks.len(), server.live.len() + server.freed.len());
        }
    }
}

#[test]
fn what_was_in_use_at_most_does_not_count_what_is_kept() {
    let reuse = Reuse::default();
    reuse.allocated(POOL, CTX, DevicePtr(1), 1000);
    assert!(reuse.keep(CTX, StreamId(5), DevicePtr(1)));
    // Held by the server: 1000 and 400; the program had 1000 at most.
    reuse.make_room(POOL, 400, |_| panic!("there is room"));
    reuse.allocated(POOL, CTX, DevicePtr(2), 400);
    assert_eq!(reuse.excess(POOL), 400);
    reuse.give_pool(POOL, |_| {});
    reuse.reset_most(POOL);
    assert_eq!(reuse.excess(POOL), 0);
}

#[test]
fn nothing_is_kept_of_contexts_and_pools_that_have_ended() {
    let reuse = Reuse::default();
    reuse.context_opened(CTX, DeviceId::new(0));
    assert_eq!(reuse.default_of(CTX), Some(POOL));
    reuse.allocated(POOL, CTX, DevicePtr(1), 512);
    reuse.allocated(POOL, CTX, DevicePtr(2), 512);
    assert!(reuse.keep(CTX, StreamId(5), DevicePtr(1)));
    let mut given = Vec::new();
    reuse.end_context(CTX, |block| given.push(block.address));
    assert_eq!((given, reuse.default_of(CTX)), (vec![DevicePtr(1)], None));
    assert!(
        !reuse.keep(CTX, StreamId(5), DevicePtr(2))
            && reuse.take(POOL, CTX, StreamId(5), 512).is_none()
    );
    let own = Pool::Made(ObjectId(9));
    reuse.set_threshold(own, u64::MAX);
    reuse.allocated(own, CTX, DevicePtr(3), 512);
    reuse.allocated(own, CTX, DevicePtr(4), 512);
    assert!(reuse.keep(CTX, StreamId(5), DevicePtr(3)));
    let mut given = Vec::new();
    reuse.end_pool(own, |block| given.push(block.address));
    assert_eq!(given, [DevicePtr(3)]);
    assert!(!reuse.keep(CTX, StreamId(5), DevicePtr(4)));
    reuse.name_default(ObjectId(77), DeviceId::new(0));
    assert_eq!((reuse.named(ObjectId(77)), reuse.named(ObjectId(9))), (POOL, own));
}

#[test]
fn a_wait_is_needed_while_something_that_was_freed_has_not_been_given_back() {
    let reuse = Reuse::default();
    assert!(!reuse.needs_wait());
    reuse.allocated(POOL, CTX, DevicePtr(1), 512);
    assert!(!reuse.needs_wait());
    // Kept, but only until the next wait: the pool's threshold is nothing.
    assert!(reuse.keep(CTX, StreamId(5), DevicePtr(1)) && reuse.needs_wait());
    reuse.before_wait(|block| reuse.frees(block.ctx, block.stream));
    assert!(reuse.needs_wait());
    // A wait for another stream is not behind it.
    reuse.waited(|_, stream| stream == StreamId(6));
    assert!(reuse.needs_wait());
    reuse.waited(|_, stream| stream == StreamId(5));
    assert!(!reuse.needs_wait());
    // What the pool holds on to needs none, until it is to hold on to less.
    reuse.set_threshold(POOL, 4096);
    reuse.allocated(POOL, CTX, DevicePtr(2), 512);
    assert!(reuse.keep(CTX, StreamId(5), DevicePtr(2)) && !reuse.needs_wait());
    reuse.set_threshold(POOL, 1024);
    assert!(reuse.needs_wait());
    reuse.waited(|_, _| false);
    assert!(!reuse.needs_wait());
    // What was freed in a context that has ended is not waited for.
    reuse.frees(CTX, StreamId(7));
    reuse.end_context(CTX, |_| {});
    reuse.waited(|_, _| false);
    assert!(!reuse.needs_wait());
}
