//! The pager over a device that is a map in this process.

mod along;
mod mapped;
mod open;
mod quiet;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_front::backend::{ContextId, HostPtr, Result};
use outboard_ranges::own_mappings;
use outboard_wire::sum::sum;
use parking_lot::{Mutex, MutexGuard};

use super::*;

static PAGER: Pager = Pager::new();
static DEVICE: Device = Device {
    bytes: Mutex::new(BTreeMap::new()),
    joins: AtomicU64::new(0),
    patches: AtomicU64::new(0),
    fetches: AtomicU64::new(0),
    slow: AtomicBool::new(false),
};
/// Counters and what is outstanding are the process's: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

const CTX: ContextId = ContextId(1);
const STREAM: StreamId = StreamId(7);

/// Pages of the device by number; those that were never written are zeros.
struct Device {
    bytes: Mutex<BTreeMap<u64, Vec<u8>>>,
    joins: AtomicU64,
    patches: AtomicU64,
    fetches: AtomicU64,
    /// Whether it takes a while to bring bytes.
    slow: AtomicBool,
}

impl Device {
    /// Calls for the part of each page, with where it is among the bytes.
    fn each(&self, address: u64, bytes: usize, mut call: impl FnMut(Range<usize>, &mut [u8])) {
        let mut pages = self.bytes.lock();
        let mut index = 0;
        while index < bytes {
            let at = address + index as u64;
            let (page, from) = (at / PAGE, (at % PAGE) as usize);
            let len = (PAGE as usize - from).min(bytes - index);
            let page = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
            call(index..index + len, &mut page[from..from + len]);
            index += len;
        }
    }

    fn write(&self, address: u64, data: &[u8]) {
        self.each(address, data.len(), |range, part| part.copy_from_slice(&data[range]));
    }

    fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.each(address, bytes, |range, part| data[range].copy_from_slice(part));
        data
    }
}

impl Store for &'static Device {
    unsafe fn fetch(
        &self,
        home: Home,
        address: UnifiedPtr,
        to: *mut u8,
        bytes: usize,
        _: Option<u64>,
    ) -> Result<bool> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let data = self.read(address.0, bytes);
        if self.slow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        // SAFETY: by the trait's contract.
        let here = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        let differs = home.kind == Kind::Managed || here != data;
        here.copy_from_slice(&data);
        Ok(differs)
    }

    unsafe fn push(
        &self,
        _: Home,
        address: UnifiedPtr,
        from: *const u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: by the trait's contract.
        self.write(address.0, unsafe { std::slice::from_raw_parts(from, bytes) });
        Ok(())
    }

    fn patch(&self, _: Home, address: UnifiedPtr, mask: &[u8], data: &[u8]) -> Result<()> {
        self.patches.fetch_add(1, Ordering::Relaxed);
        for (index, word) in data.chunks(4).enumerate() {
            if mask.is_empty() || mask[index / 8] >> (index % 8) & 1 == 1 {
                self.write(address.0 + index as u64 * 4, word);
            }
        }
        Ok(())
    }

    fn compare(
        &self,
        _: ContextId,
        seed: u64,
        known: &[(UnifiedPtr, u32, u64)],
    ) -> Result<Vec<bool>> {
        same(seed, known, |address, bytes| Ok(self.read(address, bytes)))
    }

    fn settle(&self, _: ContextId) -> Result<()> {
        Ok(())
    }

    fn join(&self, _: ContextId, _: ContextId, _: StreamId) -> Result<()> {
        self.joins.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self, _: Home, _: UnifiedPtr, _: u64) {}
}

/// Which places of a device have what has these sums.
pub(super) fn same(
    seed: u64,
    known: &[(UnifiedPtr, u32, u64)],
    read: impl Fn(u64, usize) -> Result<Vec<u8>>,
) -> Result<Vec<bool>> {
    let same = |(address, bytes, known): &(UnifiedPtr, u32, u64)| {
        Ok(sum(seed, &read(address.0, *bytes as usize)?) == *known)
    };
    known.iter().map(same).collect()
}

fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock();
    PAGER.connect(Box::new(&DEVICE));
    turn
}

/// Addresses as the pager has them.
fn both(range: &Range<u64>) -> Range<UnifiedPtr> {
    UnifiedPtr(range.start)..UnifiedPtr(range.end)
}

/// Addresses that nothing has.
fn place(pages: u64) -> Range<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(0x1a00_0000_0000);
    let base = NEXT.fetch_add((pages + 1) * PAGE, Ordering::Relaxed);
    base..base + pages * PAGE
}

fn managed(pages: u64) -> Range<u64> {
    let range = place(pages);
    assert!(
        PAGER
            .add_managed(
                CTX,
                UnifiedPtr(range.start),
                (pages * PAGE) as usize,
                true,
                Some(both(&range))
            )
            .unwrap()
    );
    range
}

/// Memory of the program, which becomes mapped: `skip` bytes from the start of its first page to
/// `skip` bytes before the end of its last. Whole pages are protected.
fn mapped(pages: u64, skip: u64) -> Range<u64> {
    PAGER.lock().opens.limit(Some(0));
    let range = mapped_of_any_size(pages, skip);
    PAGER.lock().opens.limit(None);
    range
}

fn mapped_of_any_size(pages: u64, skip: u64) -> Range<u64> {
    let memory = pages::Own::zeroed((pages * PAGE) as usize).unwrap();
    let range = memory.at(0) as u64 + skip..memory.at(0) as u64 + pages * PAGE - skip;
    std::mem::forget(memory);
    (range.start..range.end).step_by(64).for_each(|at| set(at, 3));
    // SAFETY: memory that is never given back.
    unsafe { PAGER.add_mapped(CTX, both(&range)) }.unwrap();
    range
}

fn set(address: u64, value: u8) {
    // SAFETY: the tests' own memory.
    unsafe { (address as *mut u8).write_volatile(value) }
}

fn get(address: u64) -> u8 {
    // SAFETY: the tests' own memory.
    unsafe { (address as *const u8).read_volatile() }
}

/// A kernel that runs between being queued and being waited for.
fn kernel(run: impl FnOnce()) {
    PAGER.before_work(CTX, STREAM).unwrap();
    run();
    PAGER.after_work(CTX, STREAM);
    let wait = PAGER.before_wait(false);
    PAGER.after_wait(Done::Stream((CTX, STREAM)), &wait, &Brought::default());
}

/// Words of a page that both sides write to.
const WORDS: u64 = 4000;

/// The device writes even words while the program writes odd ones.
fn both_write(word: impl Fn(u64) -> u64) {
    for i in (1..WORDS).step_by(2) {
        set(word(i), 5);
        DEVICE.write(word(i - 1), &[6]);
    }
}

/// After a wait, the program has the device's words and its own.
fn expect_of_both(word: impl Fn(u64) -> u64) {
    for i in 0..WORDS - 1 {
        assert_eq!(get(word(i)), if i % 2 == 0 { 6 } else { 5 }, "{i}");
    }
    kernel(|| {
        (1..WORDS).step_by(2).for_each(|i| assert_eq!(DEVICE.read(word(i), 1), [5], "{i}"));
    });
}

fn moved_by(run: impl FnOnce()) -> Moved {
    let before = PAGER.moved();
    run();
    let after = PAGER.moved();
    Moved {
        faults: after.faults - before.faults,
        fetched: after.fetched - before.fetched,
        pushed: after.pushed - before.pushed,
    }
}

#[test]
fn managed_memory_goes_back_and_forth() {
    let _turn = turn();
    let range = managed(64);
    for round in 0..5u8 {
        (range.start..range.end).step_by(512).for_each(|at| set(at, round + 1));
        kernel(|| {
            let data = DEVICE.read(range.start, 64 * PAGE as usize);
            assert!(data.iter().step_by(512).all(|byte| *byte == round + 1));
            DEVICE.write(range.start, &data.iter().map(|byte| byte * 2).collect::<Vec<_>>());
        });
        assert!((range.start..range.end).step_by(512).all(|at| get(at) == (round + 1) * 2));
    }
    PAGER.remove(&both(&range), false);
}

#[test]
fn only_what_was_touched_moves() {
    let _turn = turn();
    let pages = 100_000;
    let range = managed(pages);
    let first = moved_by(|| {
        (0..10).for_each(|i| set(range.start + i * 10_000 * PAGE, 1));
        kernel(|| {});
    });
    assert_eq!(
        first,
        Moved { faults: 0, fetched: 0, pushed: 10 * PAGE },
        "fresh memory is the program's"
    );
    let sparse =
        moved_by(|| (0..10).for_each(|i| assert_eq!(get(range.start + i * 10_000 * PAGE), 1)));
    assert_eq!((sparse.faults, sparse.pushed), (10, 0));
    assert!(sparse.fetched <= 10 * 4 * PAGE, "{sparse:?}");
    let idle = moved_by(|| (0..100).for_each(|_| kernel(|| {})));
    assert_eq!(idle, Moved::default());
    let dense = moved_by(|| {
        (0..10_000).for_each(|page| assert_eq!(get(range.start + page * PAGE), u8::from(page == 0)))
    });
    assert!(dense.faults < 40 && dense.fetched < 12_000 * PAGE, "{dense:?}");
    let joins = DEVICE.joins.load(Ordering::Relaxed);
    let write = moved_by(|| {
        set(range.start + 50_000 * PAGE, 9);
        kernel(|| assert_eq!(DEVICE.read(range.start + 50_000 * PAGE, 1), [9]));
    });
    assert_eq!(write.faults, 1);
    assert_eq!(write.pushed, PAGE);
    assert_eq!(DEVICE.joins.load(Ordering::Relaxed), joins + 1);
    PAGER.remove(&both(&range), false);
}

#[test]
fn many_threads_touch_what_comes_and_goes() {
    let _turn = turn();
    let range = managed(256);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (range, stop) = (&range, &stop);
            scope.spawn(move || {
                // Each has words of its own; pages are shared.
                let mut round = 0u8;
                while !stop.load(Ordering::Relaxed) {
                    round = round.wrapping_add(1);
                    for page in 0..256 {
                        set(range.start + page * PAGE + thread * 8, round);
                    }
                    for page in 0..256 {
                        assert_eq!(get(range.start + page * PAGE + thread * 8), round);
                    }
                }
            });
        }
        for _ in 0..200 {
            PAGER.before_work(CTX, STREAM).unwrap();
            PAGER.after_work(CTX, STREAM);
            let wait = PAGER.before_wait(false);
            PAGER.after_wait(Done::Stream((CTX, STREAM)), &wait, &Brought::default());
        }
        stop.store(true, Ordering::Relaxed);
    });
    PAGER.remove(&both(&range), false);
}

#[test]
fn allocations_side_by_side_do_not_disturb_each_other() {
    let _turn = turn();
    let range = place(8);
    assert!(
        PAGER.add_managed(CTX, UnifiedPtr(range.start), 8 * PAGE as usize, true, None).unwrap()
    );
    let (a, b) = (range.start..range.start + 4 * PAGE, range.start + 4 * PAGE..range.end);
    PAGER.allocate(both(&a));
    PAGER.allocate(both(&b));
    (a.start..b.end).step_by(PAGE as usize).for_each(|at| set(at, 1));
    PAGER.before_work(CTX, STREAM).unwrap();
    // A kernel writes to b while the program writes to a, which is attached to another stream, to
    // its last page.
    set(a.end - PAGE, 2);
    DEVICE.write(b.start, &[9]);
    PAGER.after_work(CTX, STREAM);
    let wait = PAGER.before_wait(false);
    PAGER.after_wait(Done::Stream((CTX, STREAM)), &wait, &Brought::default());
    assert_eq!((get(a.end - PAGE), get(b.start), get(b.start + PAGE)), (2, 9, 1));
    PAGER.refresh(&both(&b));
    assert_eq!(get(b.start), 0);
    kernel(|| {
        assert_eq!(
            (DEVICE.read(a.end - PAGE, 1), DEVICE.read(b.start, 1)),
            (vec![2], vec![9]),
            "b is nobody's"
        )
    });
    PAGER.remove(&both(&range), false);
}

#[test]
fn managed_memory_lies_in_a_window_that_is_kept() {
    let _turn = turn();
    let window = Window::numbered(5).unwrap();
    let base = window.range().start + (1 << 30);
    let has_something = || own_mappings().unwrap().any(|mapping| mapping.range.contains(&base));
    assert!(!has_something());
    PAGER.keep(window);
    assert!(has_something(), "nothing else can come to lie there");
    for _ in 0..2 {
        let range = UnifiedPtr(base)..UnifiedPtr(base + 4 * PAGE);
        assert!(
            PAGER
                .add_managed(CTX, range.start, 4 * PAGE as usize, true, Some(range.clone()))
                .unwrap()
        );
        set(base + PAGE, 7);
        kernel(|| assert_eq!(DEVICE.read(base + PAGE, 1), [7]));
        let again = PAGER.add_managed(CTX, UnifiedPtr(base + PAGE), PAGE as usize, true, None);
        assert!(!again.unwrap(), "it is there already");
        PAGER.remove(&range, false);
        assert!(has_something());
    }
}

#[test]
fn variables_share_pages() {
    let _turn = turn();
    let range = place(3);
    let (a, b, c) = (range.start + 100, range.start + 200, range.start + PAGE - 8);
    DEVICE.write(a, &[1; 50]);
    DEVICE.write(c, &[3; 4000]);
    PAGER.add_variable(CTX, UnifiedPtr(a).range(50)).unwrap();
    PAGER.add_variable(CTX, UnifiedPtr(b).range(50)).unwrap();
    PAGER.add_variable(CTX, UnifiedPtr(c).range(4000)).unwrap();
    assert_eq!((get(a), get(b), get(c), get(c + 3999)), (1, 0, 3, 3));
    // Bytes between them are not ours to change.
    DEVICE.write(a + 60, &[77]);
    set(b, 9);
    set(c + 100, 8);
    kernel(|| {
        assert_eq!(
            (DEVICE.read(b, 1), DEVICE.read(c + 100, 1), DEVICE.read(a + 60, 1)),
            (vec![9], vec![8], vec![77])
        )
    });
    PAGER.remove(&both(&range), false);
}

#[test]
fn prefetches_bring_pages_before_they_are_touched() {
    let _turn = turn();
    let range = managed(100);
    kernel(|| DEVICE.write(range.start + 50 * PAGE, &[4; 100]));
    PAGER.want(CTX, STREAM, both(&(range.start + 40 * PAGE..range.start + 60 * PAGE)));
    kernel(|| {});
    let touch = moved_by(|| assert_eq!(get(range.start + 50 * PAGE), 4));
    assert_eq!(touch, Moved::default());
    PAGER.remove(&both(&range), false);
}

static OTHERS: AtomicU32 = AtomicU32::new(0);

extern "C" fn others(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut std::ffi::c_void) {
    OTHERS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the system gives the handler its information.
    let page = unsafe { (*info).si_addr() } as u64 & !(PAGE - 1);
    pages::protect(HostPtr(page), PAGE as usize, pages::Access::Write).unwrap();
}

#[test]
fn faults_of_the_program_reach_its_handler() {
    let _turn = turn();
    let range = managed(4);
    kernel(|| DEVICE.write(range.start, &[1]));
    // Set after ours: from the next call on, ours is before it.
    // SAFETY: all zeros is an action without flags; the handler is of the kind that the flag says.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = others as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
    }
    kernel(|| DEVICE.write(range.start, &[2]));
    let own = pages::Own::zeroed(PAGE as usize).unwrap();
    pages::protect(HostPtr::of(own.at(0)), PAGE as usize, pages::Access::None).unwrap();
    set(own.at(0) as u64, 5);
    assert_eq!((get(own.at(0) as u64), OTHERS.load(Ordering::Relaxed)), (5, 1));
    assert_eq!((get(range.start), OTHERS.load(Ordering::Relaxed)), (2, 1), "ours do not");
    PAGER.remove(&both(&range), false);
}

/// All of these tests where the kernel watches no pages.
#[test]
fn touches_may_be_signals() {
    const SIGNALS: (&str, &str) = ("OUTBOARD_PAGE_TOUCHES", "signals");
    if std::env::var(SIGNALS.0).is_ok_and(|how| how == SIGNALS.1) {
        return;
    }
    let tests = std::env::current_exe().unwrap();
    let run = std::process::Command::new(tests).arg("pager::").env(SIGNALS.0, SIGNALS.1).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
