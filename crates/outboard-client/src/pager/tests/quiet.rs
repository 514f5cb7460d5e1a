//! Mapped memory that the device leaves alone.

use super::along::{OTHER, begin, compared, end_with, fetches_by, launch};
use super::*;

/// Waits, and compares.
fn waited(stream: StreamId) {
    let wait = begin();
    let same = compared(&wait);
    end_with(stream, &wait, &[], same);
}

fn fill(range: &Range<u64>, value: u8) {
    (range.start..range.end).step_by(64).for_each(|at| set(at, value));
}

/// Memory that the program has written to between kernels, which only read it.
fn quiet(pages: u64) -> Range<u64> {
    let range = mapped(pages, 0);
    for value in 10..16 {
        launch(STREAM);
        waited(STREAM);
        fill(&range, value);
    }
    launch(STREAM);
    range
}

#[test]
fn what_the_device_leaves_alone_is_written_without_asking() {
    let _turn = turn();
    let range = quiet(256);
    for value in 30..50 {
        waited(STREAM);
        let mut moved = Moved::default();
        let asked = fetches_by(|| moved = moved_by(|| fill(&range, value)));
        assert_eq!((asked, moved.fetched), (0, 0), "{value}");
        // Now and then it is found out anew how much is touched.
        assert!(moved.faults <= 12, "{value}: {moved:?}");
        launch(STREAM);
        assert_eq!(DEVICE.read(range.start + 77 * PAGE, 1), [value]);
    }
    waited(STREAM);
    PAGER.remove(&both(&range), true);
}

#[test]
fn what_the_device_writes_after_all_is_there_after_a_wait() {
    let _turn = turn();
    for compares in [true, false] {
        let range = quiet(64);
        let word = |page: u64| range.start + page * PAGE + 100;
        for round in 100..130 {
            // In every third round, or in each of some rounds in a row.
            let writes = round % 3 == 0 || round > 120;
            if writes {
                DEVICE.write(word(5), &[round]);
            }
            match compares {
                true => waited(STREAM),
                false => PAGER.after_wait(
                    Done::Stream((CTX, STREAM)),
                    &PAGER.before_wait(false),
                    &Brought::default(),
                ),
            }
            set(word(5) + 4, round);
            if writes {
                assert_eq!(get(word(5)), round);
            }
            set(word(40), round);
            launch(STREAM);
            assert_eq!(
                (DEVICE.read(word(5) + 4, 1), DEVICE.read(word(40), 1)),
                (vec![round], vec![round])
            );
            assert_eq!(
                DEVICE.read(word(5), 1),
                [get(word(5))],
                "what the device wrote is not undone"
            );
        }
        waited(STREAM);
        PAGER.remove(&both(&range), true);
    }
}

#[test]
fn answers_that_are_older_than_a_touch_or_another_wait_say_nothing() {
    let _turn = turn();
    for touched in [true, false] {
        let range = quiet(8);
        launch(OTHER);
        let first = begin();
        let old = compared(&first);
        assert_eq!(old, [true], "it is compared");
        if touched {
            set(range.start + 16, 77);
        }
        DEVICE.write(range.start, &[8]);
        waited(OTHER);
        end_with(STREAM, &first, &[], old);
        assert_eq!(get(range.start), 8);
        PAGER.remove(&both(&range), true);
    }
}

#[test]
fn flags_of_running_kernels_are_seen_in_memory_that_was_left_alone() {
    let _turn = turn();
    let range = quiet(8);
    launch(OTHER);
    waited(STREAM);
    // The program looks only once.
    DEVICE.write(range.start, &[98]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(get(range.start), 98);
    DEVICE.write(range.start, &[99]);
    let start = Instant::now();
    while get(range.start) != 99 {
        assert!(start.elapsed() < Duration::from_secs(20), "the kernel's flag does not come");
    }
    waited(OTHER);
    PAGER.remove(&both(&range), true);
}

/// A running kernel writes data, and then a flag to other memory: who sees the flag sees the data.
#[test]
fn data_is_not_older_than_a_flag() {
    let _turn = turn();
    let flag = mapped(1, 0);
    for round in 1..100 {
        let data = quiet(8);
        launch(OTHER);
        waited(STREAM);
        if round % 2 == 0 {
            // Open, and known to be as it was.
            set(data.start + 64, 9);
        }
        DEVICE.write(data.start, &[99]);
        DEVICE.write(flag.start, &[round]);
        let start = Instant::now();
        while get(flag.start) != round {
            assert!(start.elapsed() < Duration::from_secs(20), "the kernel's flag does not come");
        }
        assert_eq!(get(data.start), 99, "{round}");
        waited(OTHER);
        PAGER.remove(&both(&data), true);
    }
    PAGER.remove(&both(&flag), true);
}
