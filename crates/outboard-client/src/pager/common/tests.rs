//! Common memory over servers that are vectors in this process, against a model that knows the
//! newest value of each word.

mod threads;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result, StreamId};
use outboard_wire::HostPtr;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::dup;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::*;
use crate::pager::COMMON as MEMORY;
use crate::pager::PAGE;
use crate::pager::store::{Home, Store};
use crate::pager::tests::same;

const SERVERS: usize = 3;
/// Pages of a range, which begins and ends within one.
const PAGES: u64 = 6;
const SKIP: u64 = 40;
const WORDS: usize = ((PAGES * PAGE - 2 * SKIP) / 4) as usize;

/// A server's memory from an address on; a lost one's cannot be had.
struct Device {
    base: Mutex<u64>,
    bytes: Mutex<Vec<u8>>,
    is_lost: Mutex<bool>,
    /// What it has given up.
    closed: Mutex<Vec<Range<u64>>>,
    /// What happens while it is next sent something.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

static DEVICES: [Device; SERVERS] = [const { Device::new() }; SERVERS];
static PAGERS: [Pager; SERVERS] = [const { Pager::new() }; SERVERS];
/// They are the process's: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

impl Device {
    const fn new() -> Device {
        Device {
            base: Mutex::new(0),
            bytes: Mutex::new(Vec::new()),
            is_lost: Mutex::new(false),
            closed: Mutex::new(Vec::new()),
            meanwhile: Mutex::new(None),
        }
    }

    fn with<T>(&self, address: u64, bytes: usize, run: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        if *self.is_lost.lock() {
            return Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE);
        }
        let at = (address - *self.base.lock()) as usize;
        Ok(run(&mut self.bytes.lock()[at..at + bytes]))
    }

    fn run_meanwhile(&self) {
        let run = self.meanwhile.lock().take();
        if let Some(run) = run {
            run();
        }
    }

    fn word(&self, address: u64) -> u32 {
        self.with(address, 4, |word| u32::from_ne_bytes(word.try_into().unwrap())).unwrap()
    }

    fn set_word(&self, address: u64, value: u32) {
        self.with(address, 4, |word| word.copy_from_slice(&value.to_ne_bytes())).unwrap();
    }
}

impl Store for &'static Device {
    unsafe fn fetch(
        &self,
        _: Home,
        address: UnifiedPtr,
        to: *mut u8,
        bytes: usize,
        _: Option<u64>,
    ) -> Result<bool> {
        // SAFETY: by the trait's contract.
        let here = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        self.with(address.0, bytes, |there| {
            let differs = here != there;
            here.copy_from_slice(there);
            differs
        })
    }

    unsafe fn push(&self, _: Home, to: UnifiedPtr, from: *const u8, bytes: usize) -> Result<()> {
        self.run_meanwhile();
        // SAFETY: by the trait's contract.
        let data = unsafe { std::slice::from_raw_parts(from, bytes) };
        self.with(to.0, bytes, |there| there.copy_from_slice(data))
    }

    fn patch(&self, _: Home, address: UnifiedPtr, mask: &[u8], data: &[u8]) -> Result<()> {
        self.run_meanwhile();
        self.with(address.0, data.len(), |there| {
            let words = there.chunks_mut(4).zip(data.chunks(4)).enumerate();
            for (index, (there, word)) in words {
                if mask.is_empty() || mask[index / 8] >> (index % 8) & 1 == 1 {
                    there.copy_from_slice(word);
                }
            }
        })
    }

    fn compare(
        &self,
        _: ContextId,
        seed: u64,
        known: &[(UnifiedPtr, u32, u64)],
    ) -> Result<Vec<bool>> {
        same(seed, known, |address, bytes| self.with(address, bytes, |there| there.to_vec()))
    }

    fn settle(&self, _: ContextId) -> Result<()> {
        Ok(())
    }

    fn join(&self, _: ContextId, _: ContextId, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn close(&self, _: Home, address: UnifiedPtr, bytes: u64) {
        self.closed.lock().push(address.0..address.0 + bytes);
    }
}

fn server(place: usize) -> ServerId {
    ServerId::new(place).unwrap()
}

fn ctx(place: usize) -> ContextId {
    ContextId::new(server(place), 1).unwrap()
}

fn part(place: usize) -> Part {
    Part { server: server(place), pager: &PAGERS[place], ctx: ctx(place) }
}

/// The program's store and load.
fn store(address: u64, value: u32) {
    // SAFETY: the memory of a test, aligned.
    unsafe { HostPtr(address).pointer::<u32>().write_volatile(value) }
}

fn load(address: u64) -> u32 {
    // SAFETY: as above.
    unsafe { HostPtr(address).pointer::<u32>().read_volatile() }
}

/// How memory became common.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// The program's own became that of two servers at once.
    Whole,
    /// The first server had it before.
    TakenOver,
    /// The first server has the same pages.
    Lent,
}

/// Common memory of all servers, and the values that it should have.
struct World {
    start: u64,
    whole: Range<UnifiedPtr>,
    newest: Vec<u32>,
    /// The server whose work has written a word and has not been waited for.
    writer: Vec<Option<usize>>,
    /// Where the first server's kernels write, if it has the same pages.
    same: Option<u64>,
    _file: Option<OwnedFd>,
}

impl World {
    fn new(made: Made) -> World {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = (PAGES * PAGE) as usize;
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        // SAFETY: new mappings, wherever there is room.
        let (memory, same) = unsafe {
            let shared = || mmap(null_mut(), bytes, access, MapFlags::SHARED, &file, 0).unwrap();
            match made {
                Made::Lent => (shared(), Some(shared() as u64)),
                _ => (mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE).unwrap(), None),
            }
        };
        let start = memory as u64 + SKIP;
        let whole = UnifiedPtr(start)..UnifiedPtr(start + WORDS as u64 * 4);
        for (place, device) in DEVICES.iter().enumerate() {
            *device.base.lock() = memory as u64;
            *device.bytes.lock() = vec![0; bytes];
            *device.is_lost.lock() = false;
            device.closed.lock().clear();
            PAGERS[place].connect(Box::new(device));
        }
        let newest: Vec<u32> = (0..WORDS as u32).map(|word| word * 3).collect();
        let same = same.map(|same| same + SKIP);
        let writer = vec![None; WORDS];
        let world = World { start, whole: whole.clone(), newest, writer, same, _file: None };
        (0..WORDS).for_each(|word| world.store(word, world.newest[word]));
        match made {
            // SAFETY: memory of this test, which stays.
            Made::Whole => unsafe { MEMORY.take_in(&whole, ctx(0)) }.unwrap(),
            Made::TakenOver => {
                // SAFETY: as above.
                unsafe { PAGERS[0].add_mapped(ctx(0), whole.clone()) }.unwrap();
                MEMORY.take_over(part(0), &whole, ctx(0)).unwrap();
            }
            Made::Lent => {
                let lent = Lent { file: dup(&file).unwrap(), offset: 0, to: vec![part(0)] };
                MEMORY.take_lent(&whole, ctx(0), lent).unwrap();
            }
        }
        (0..SERVERS).for_each(|place| MEMORY.add(&whole, part(place)).unwrap());
        World { _file: Some(file), ..world }
    }

    fn at(&self, word: usize) -> u64 {
        self.start + word as u64 * 4
    }

    fn store(&self, word: usize, value: u32) {
        store(self.at(word), value);
    }

    fn load(&self, word: usize) -> u32 {
        load(self.at(word))
    }

    /// A kernel's.
    fn add(&self, place: usize, word: usize, value: u32) -> u32 {
        match self.same.filter(|_| place == 0) {
            Some(same) => {
                let at = HostPtr(same + word as u64 * 4).pointer::<u32>();
                // SAFETY: the other mapping of the same memory.
                unsafe {
                    let before = at.read_volatile();
                    at.write_volatile(before + value);
                    before
                }
            }
            None => {
                let before = DEVICES[place].word(self.at(word));
                DEVICES[place].set_word(self.at(word), before + value);
                before
            }
        }
    }

    fn wait(&mut self, place: usize) {
        MEMORY.before_wait();
        MEMORY.after_wait(server(place), || false);
        self.writer.iter_mut().filter(|by| **by == Some(place)).for_each(|by| *by = None);
    }

    fn wait_for_words(&mut self, words: &[usize]) {
        for place in 0..SERVERS {
            if words.iter().any(|word| self.writer[*word] == Some(place)) {
                self.wait(place);
            }
        }
    }

    /// A kernel adds to words. What other servers' kernels have written there is ordered before it:
    /// by a wait of the program, or by an event that its stream waits for.
    fn kernel(&mut self, place: usize, words: &[usize], value: u32, by_event: bool) {
        self.begin_kernel(place, words, by_event);
        self.write(place, words, value);
    }

    /// The kernel comes to run.
    fn begin_kernel(&mut self, place: usize, words: &[usize], by_event: bool) {
        let others =
            words.iter().any(|word| self.writer[*word].is_some_and(|other| other != place));
        if !by_event {
            self.wait_for_words(words);
        }
        MEMORY.before_work(server(place)).unwrap();
        MEMORY.after_work(server(place));
        if by_event && others {
            MEMORY.before_function();
            MEMORY.hand_on(server(place));
        }
    }

    /// What it does.
    fn write(&mut self, place: usize, words: &[usize], value: u32) {
        for word in words {
            assert_eq!(self.add(place, *word, value), self.newest[*word], "word {word} on {place}");
            self.newest[*word] += value;
            self.writer[*word] = Some(place);
        }
    }

    /// The program has all to itself again, up to date.
    fn end(mut self) {
        for word in 0..WORDS {
            self.wait_for_words(&[word]);
        }
        MEMORY.remove(&self.whole, true);
        for word in 0..WORDS {
            assert_eq!(self.load(word), self.newest[word], "word {word} at the end");
        }
        self.store(5, 1);
        assert!(MEMORY.lock().regions.is_empty() && MEMORY.lock().working.is_empty());
        for (place, device) in DEVICES.iter().enumerate() {
            let whole = self.whole.start.0..self.whole.end.0;
            // The owner's server gives it up by itself.
            let closed = if place == 0 || *device.is_lost.lock() { vec![] } else { vec![whole] };
            assert_eq!(*device.closed.lock(), closed, "server {place}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Kernel {
        place: usize,
        first: usize,
        stride: usize,
        value: u32,
        by_event: bool,
    },
    Write {
        first: usize,
        stride: usize,
        value: u32,
    },
    Read {
        first: usize,
        stride: usize,
    },
    Wait(usize),
    /// A function of the program that a stream of the server calls writes a word.
    Function(usize, usize),
    /// Time passes.
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (place, first) = (0..SERVERS, 0..WORDS);
    let stride = prop_oneof![Just(1usize), 2usize..40, 500usize..5000];
    let kernel = (place.clone(), first.clone(), stride.clone(), 1u32..100, any::<bool>()).prop_map(
        |(place, first, stride, value, by_event)| Step::Kernel {
            place,
            first,
            stride,
            value,
            by_event,
        },
    );
    let write = (first.clone(), stride.clone(), any::<u16>())
        .prop_map(|(first, stride, value)| Step::Write { first, stride, value: value.into() });
    let read = (first.clone(), stride).prop_map(|(first, stride)| Step::Read { first, stride });
    let function = (place.clone(), first).prop_map(|(place, word)| Step::Function(place, word));
    let step = prop_oneof![
        4 => kernel, 2 => write, 2 => read, 1 => place.prop_map(Step::Wait), 1 => function,
        1 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..40)
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![Just(Made::Whole), Just(Made::TakenOver), Just(Made::Lent)]
}

proptest! {
    // What a failure leaves behind is no ground for further cases.
    #![proptest_config(ProptestConfig {
        cases: 60, max_shrink_iters: 0, ..ProptestConfig::default()
    })]
    #[test]
    fn the_newest_value_is_seen(made in made(), steps in steps()) {
        let _turn = TURN.lock();
        let mut world = World::new(made);
        for step in steps {
            match step {
                Step::Kernel { place, first, stride, value, by_event } => {
                    let words: Vec<_> = (first..WORDS).step_by(stride).take(400).collect();
                    world.kernel(place, &words, value, by_event);
                }
                Step::Write { first, stride, value } => {
                    let words: Vec<_> = (first..WORDS).step_by(stride).take(400).collect();
                    world.wait_for_words(&words);
                    for word in words {
                        world.store(word, value);
                        world.newest[word] = value;
                    }
                }
                Step::Read { first, stride } => {
                    let words: Vec<_> = (first..WORDS).step_by(stride).take(400).collect();
                    world.wait_for_words(&words);
                    for word in words {
                        prop_assert_eq!(world.load(word), world.newest[word], "word {}", word);
                    }
                }
                Step::Wait(place) => world.wait(place),
                Step::Function(place, word) => {
                    world.wait_for_words(&[word]);
                    MEMORY.before_function();
                    world.store(word, 7);
                    world.newest[word] = 7;
                    MEMORY.after_function(server(place));
                    if place > 0 || world.same.is_none() {
                        prop_assert_eq!(DEVICES[place].word(world.at(word)), 7);
                    }
                }
                Step::Look => {
                    let _ = MEMORY.look_in_time();
                }
            }
        }
        world.end();
    }
}

/// Kernels that run see what the program and others write, without a wait.
#[test]
fn what_is_written_meanwhile_comes() {
    let _turn = TURN.lock();
    for made in [Made::Whole, Made::TakenOver, Made::Lent] {
        let world = World::new(made);
        for place in 0..SERVERS {
            MEMORY.before_work(server(place)).unwrap();
            MEMORY.after_work(server(place));
        }
        let comes = |word: usize, value: u32| {
            let begun = Instant::now();
            let seen = |place: usize| match place {
                0 if world.same.is_some() => world.load(word),
                _ => DEVICES[place].word(world.at(word)),
            };
            while (0..SERVERS).any(|place| seen(place) != value) || world.load(word) != value {
                assert!(begun.elapsed() < Duration::from_secs(20), "{made:?}: it does not come");
            }
        };
        world.store(2000, 70_001);
        comes(2000, 70_001);
        for (place, word) in [(1, 2001), (2, 4000), (0, 2003)] {
            let before = world.newest[word];
            world.add(place, word, 80_000);
            comes(word, before + 80_000);
        }
        (0..SERVERS).for_each(|place| MEMORY.after_wait(server(place), || false));
        MEMORY.remove(&world.whole, true);
        assert!(world.load(2000) == 70_001 && world.load(2001) == world.newest[2001] + 80_000);
    }
}

/// What a lost server's kernels have written since they were last waited for is lost, and nothing
/// else.
#[test]
fn others_keep_the_memory_when_a_server_is_lost() {
    let _turn = TURN.lock();
    for made in [Made::Whole, Made::TakenOver, Made::Lent] {
        let mut world = World::new(made);
        let words: Vec<usize> = (0..WORDS).step_by(3).collect();
        world.kernel(2, &words, 5, false);
        world.wait(2);
        assert_eq!(world.load(3), world.newest[3]);
        world.kernel(1, &words, 1, false);
        let before = world.newest.clone();
        world.begin_kernel(2, &words, true);
        {
            // A thread looks at memory that kernels work with: not between these two.
            let _no_look = MEMORY.lock();
            world.write(2, &words, 9);
            *DEVICES[2].is_lost.lock() = true;
        }
        MEMORY.after_wait(server(2), || false);
        // The words of the page that was read, and what the second server had.
        world.newest = before;
        world.writer.fill(None);
        world.wait(1);
        for word in 0..WORDS {
            assert_eq!(world.load(word), world.newest[word], "{made:?}: word {word}");
        }
        world.kernel(0, &words, 4, false);
        world.kernel(1, &words, 2, true);
        world.wait(1);
        assert!(!MEMORY.has(server(2), world.whole.start.offset(PAGE)));
        world.end();
    }
}

/// A context that ends takes its own part along; with the owner's, all of it is over.
#[test]
fn contexts_end_by_themselves() {
    let _turn = TURN.lock();
    let mut world = World::new(Made::Whole);
    let words: Vec<usize> = (0..WORDS).collect();
    world.kernel(1, &words, 3, false);
    MEMORY.forget_context(ctx(1));
    world.writer.fill(None);
    assert!(!MEMORY.has(server(1), world.whole.start.offset(PAGE)));
    world.kernel(2, &words, 3, false);
    world.wait(2);
    words.iter().for_each(|word| assert_eq!(world.load(*word), world.newest[*word]));
    MEMORY.forget_context(ctx(0));
    assert!(MEMORY.lock().regions.is_empty() && MEMORY.whole(world.whole.start).is_none());
    assert!(PAGERS.iter().all(|pager| !pager.is_active()));
    words.iter().for_each(|word| assert_eq!(world.load(*word), world.newest[*word]));
}
