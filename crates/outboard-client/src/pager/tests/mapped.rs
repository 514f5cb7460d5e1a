//! Page-locked memory that the device uses.

use super::*;

#[test]
fn sides_of_mapped_memory_share_pages() {
    let _turn = turn();
    for skip in [0, 1000] {
        let range = mapped(8, skip);
        let word = |i: u64| range.start + i * 4;
        PAGER.before_work(CTX, STREAM).unwrap();
        PAGER.after_work(CTX, STREAM);
        assert_eq!(DEVICE.read(word(16), 1), [3], "what was there before is sent");
        both_write(word);
        let wait = PAGER.before_wait(false);
        PAGER.after_wait(Done::Stream((CTX, STREAM)), &wait, &Brought::default());
        expect_of_both(word);
        PAGER.remove(&both(&range), true);
        DEVICE.write(word(0), &[99]);
        assert!(get(word(0)) == 6 && get(word(1)) == 5, "the program keeps its memory");
        set(word(0), 7);
        assert_eq!(get(word(0)), 7);
    }
}

/// As threads do that fill a batch together: each touches the pages of its own part, all of them in
/// turns.
#[test]
fn a_batch_that_is_written_again_and_again_is_opened_at_once() {
    const PARTS: u64 = 16;
    let _turn = turn();
    let range = mapped(256, 0);
    kernel(|| ());
    let fill = |value: u8| {
        // The thread that has the last part is the first.
        let pages = (0..256).map(|at| (PARTS - 1 - at % PARTS) * PARTS + at / PARTS);
        moved_by(|| pages.for_each(|page| set(range.start + page * PAGE + 8, value))).faults
    };
    let first = fill(4);
    assert!((16..=64).contains(&first), "{first} touches were noticed");
    for round in 5..20 {
        kernel(|| ());
        assert_eq!(fill(round), 1);
        kernel(|| assert_eq!(DEVICE.read(range.start + 77 * PAGE + 8, 1), [round]));
        assert_eq!(get(range.start + 200 * PAGE + 8), round);
    }
    let patches = DEVICE.patches.load(Ordering::Relaxed);
    (range.start..range.end).step_by(4).for_each(|word| set(word, 99));
    kernel(|| assert_eq!(DEVICE.read(range.start + 77 * PAGE, 1), [99]));
    assert_eq!(DEVICE.patches.load(Ordering::Relaxed), patches + 1, "a batch is sent in one piece");
    PAGER.remove(&both(&range), true);
}

/// As a program does that reads the next batch from a disk while the device works on the one
/// before.
#[test]
fn a_batch_that_is_written_slowly_is_brought_once() {
    let _turn = turn();
    let range = mapped(64, 0);
    let fill = |value: u8| (0..64).for_each(|page| set(range.start + page * PAGE, value));
    for round in 1..4 {
        kernel(|| fill(round));
        DEVICE.write(range.start + 8, &[round]);
    }
    PAGER.before_work(CTX, STREAM).unwrap();
    PAGER.after_work(CTX, STREAM);
    DEVICE.slow.store(true, Ordering::Relaxed);
    let moved = moved_by(|| {
        for page in 0..64 {
            set(range.start + page * PAGE, 9);
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    DEVICE.slow.store(false, Ordering::Relaxed);
    assert_eq!((moved.faults, moved.fetched), (1, 64 * PAGE), "{moved:?}");
    let start = Instant::now();
    while DEVICE.read(range.start + 63 * PAGE, 1) != [9] {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "what was written is not sent while the device works"
        );
    }
    let wait = PAGER.before_wait(false);
    PAGER.after_wait(Done::Context(CTX), &wait, &Brought::default());
    PAGER.remove(&both(&range), true);
}

#[test]
fn flags_in_mapped_memory_can_be_polled() {
    let _turn = turn();
    let range = mapped(1, 0);
    PAGER.before_work(CTX, STREAM).unwrap();
    PAGER.after_work(CTX, STREAM);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A kernel that waits for the program's flag and then sets its own.
            while DEVICE.read(range.start + 8, 1) != [42] {
                std::thread::sleep(Duration::from_micros(100));
            }
            DEVICE.write(range.start + 64, &[43]);
        });
        set(range.start + 8, 42);
        let start = Instant::now();
        while get(range.start + 64) != 43 {
            assert!(start.elapsed() < Duration::from_secs(20), "the kernel's flag does not come");
        }
    });
    let wait = PAGER.before_wait(false);
    PAGER.after_wait(Done::Context(CTX), &wait, &Brought::default());
    PAGER.remove(&both(&range), true);
}
