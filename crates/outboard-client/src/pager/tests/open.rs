//! Page-locked memory that stays accessible.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::along::{OTHER, begin, compared, end_with, fetches_by, launch};
use super::mapped_of_any_size as open;
use super::*;

/// A wait, and its answer.
fn waited(stream: StreamId) -> usize {
    let wait = begin();
    let places = wait.places().iter();
    let data: Vec<u8> =
        places.flat_map(|(address, bytes)| DEVICE.read(address.0, *bytes as usize)).collect();
    end_with(stream, &wait, &data, compared(&wait));
    data.len()
}

/// The bytes of a range, by a system call.
fn written_by_the_system(range: &Range<u64>) -> Vec<u8> {
    let file = File::from(memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap());
    let bytes = (range.end - range.start) as usize;
    // SAFETY: the tests' own memory.
    let here = unsafe { std::slice::from_raw_parts(range.start as *const u8, bytes) };
    file.write_all_at(here, 0).unwrap();
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, 0).unwrap();
    read
}

/// Has a system call write to a range.
fn read_by_the_system(range: &Range<u64>, value: u8) {
    let file = File::from(memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap());
    let bytes = (range.end - range.start) as usize;
    file.write_all_at(&vec![value; bytes], 0).unwrap();
    // SAFETY: the tests' own memory.
    let here = unsafe { std::slice::from_raw_parts_mut(range.start as *mut u8, bytes) };
    file.read_exact_at(here, 0).unwrap();
}

#[test]
fn system_calls_reach_it_whatever_kernels_do() {
    let _turn = turn();
    for (pages, skip) in [(1, 0), (256, 0), (255, 1001), (9, 24)] {
        let range = open(pages, skip);
        let bytes = (range.end - range.start) as usize;
        for round in 1..5 {
            launch(STREAM);
            let there = DEVICE.read(range.start, bytes);
            let last = if round == 1 { None } else { Some(round - 1) };
            assert!(last.is_none_or(|last| there.iter().all(|byte| *byte == last)));
            DEVICE.write(range.start, &vec![100 + round; bytes]);
            waited(STREAM);
            assert!(written_by_the_system(&range).iter().all(|byte| *byte == 100 + round));
            // While a kernel is queued already, too.
            launch(STREAM);
            read_by_the_system(&range, round);
            waited(STREAM);
            assert!(written_by_the_system(&range).iter().all(|byte| *byte == round));
        }
        let faults = PAGER.moved().faults;
        PAGER.remove(&both(&range), true);
        assert_eq!((get(range.start), PAGER.moved().faults), (4, faults));
    }
}

#[test]
fn both_sides_write_words_of_a_page() {
    let _turn = turn();
    for skip in [0, 1000, 1002, 1003] {
        let range = open(8, skip);
        let word = |i: u64| range.start.next_multiple_of(4) + i * 4;
        launch(STREAM);
        assert_eq!(DEVICE.read(word(16), 1), [get(word(16))], "what was there before is sent");
        both_write(word);
        waited(STREAM);
        expect_of_both(word);
        PAGER.remove(&both(&range), true);
        DEVICE.write(word(0), &[99]);
        assert!(get(word(0)) == 6 && get(word(1)) == 5, "the program keeps its memory");
    }
}

#[test]
fn what_changes_at_each_step_comes_with_the_answer_and_what_does_not_is_not_sent() {
    let _turn = turn();
    let range = open(256, 0);
    PAGER.lock().looks.pause(true);
    let step = |value: u8, bytes: usize| {
        launch(STREAM);
        DEVICE.write(range.start, &vec![value; bytes]);
        let mut came = 0;
        let fetches = fetches_by(|| came = waited(STREAM));
        assert_eq!((get(range.start), get(range.start + bytes as u64 - 1)), (value, value));
        (fetches, came)
    };
    assert_eq!(step(7, 40_000), (1, 0));
    for value in 8..20 {
        assert_eq!(step(value, 40_000), (0, 3 * (16 << 10)), "three parts come");
    }
    // More than comes with an answer, in one piece.
    step(20, 1 << 20);
    for value in 21..25 {
        let (fetches, came) = step(value, 1 << 20);
        assert!(fetches == 1 && came <= 960 << 10, "{fetches} {came}");
    }
    let idle = moved_by(|| {
        for _ in 0..10 {
            launch(STREAM);
            waited(STREAM);
        }
    });
    assert!(idle.fetched <= 4 * (960 << 10), "{idle:?}");
    assert_eq!((waited(STREAM), idle.pushed), (0, 0));
    PAGER.lock().looks.pause(false);
    PAGER.remove(&both(&range), true);
}

#[test]
fn work_sees_what_the_program_has_written_wherever_its_address_comes_from() {
    let _turn = turn();
    let ranges = [open(32, 0), open(1, 0)];
    for value in 10..20 {
        for at in [0, 8, 900] {
            ranges.iter().for_each(|range| set(range.start + at, value));
            // No wait is between them, and nothing is said of what they use.
            launch(STREAM);
            for range in &ranges {
                assert_eq!(DEVICE.read(range.start + at, 1), [value], "{at}");
            }
        }
        waited(STREAM);
    }
    ranges.iter().for_each(|range| PAGER.remove(&both(range), true));
}

#[test]
fn answers_that_are_older_than_another_wait_are_not_taken() {
    let _turn = turn();
    for pages in [1, 64] {
        let range = open(pages, 0);
        launch(STREAM);
        launch(OTHER);
        let first = begin();
        let old: Vec<u8> = first
            .places()
            .iter()
            .flat_map(|(address, bytes)| DEVICE.read(address.0, *bytes as usize))
            .collect();
        let same = compared(&first);
        DEVICE.write(range.start, &[8]);
        waited(OTHER);
        // What the program writes meanwhile goes to the device with other work.
        set(range.start + 4, 9);
        launch(OTHER);
        end_with(STREAM, &first, &old, same);
        assert_eq!((get(range.start), get(range.start + 4)), (8, 9));
        waited(OTHER);
        assert_eq!(get(range.start + 4), 9);
        PAGER.remove(&both(&range), true);
    }
}

/// The program polls a word at the beginning, behind which lie others that are written before it.
#[test]
fn flags_do_not_overtake_what_was_written_before_them() {
    let _turn = turn();
    for skip in [0, 1000] {
        let range = open(16, skip);
        let words = (range.end - range.start) / 4;
        let word = |i: u64| range.start + i * 4;
        let read = |i: u64| {
            // SAFETY: the tests' own memory.
            unsafe { (word(i) as *const u32).read_volatile() }
        };
        launch(STREAM);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 10..50u32 {
                    let start = Instant::now();
                    while read(0) < round {
                        assert!(start.elapsed() < Duration::from_secs(20), "no flag comes");
                    }
                    // Of registered memory, those on pages that others use come one by one.
                    for i in [1030, 2000, words - 1100, 3000] {
                        assert!(read(i) >= round, "{skip}: word {i} of round {round}");
                    }
                    set(word(1), round as u8);
                }
            });
            for round in 10..50u32 {
                for i in 1000..words {
                    DEVICE.write(word(i), &round.to_le_bytes());
                }
                DEVICE.write(word(0), &round.to_le_bytes());
                let start = Instant::now();
                while DEVICE.read(word(1), 1) != [round as u8] {
                    assert!(start.elapsed() < Duration::from_secs(20), "no answer comes");
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        waited(STREAM);
        PAGER.remove(&both(&range), true);
    }
}

#[test]
fn only_so_much_stays_accessible() {
    let _turn = turn();
    let large = open(257, 0);
    let few: Vec<_> = (0..5).map(|_| open(256, 0)).collect();
    let opens = |range: &Range<u64>| {
        let inner = PAGER.lock();
        inner.opens.ranges().any(|open| open == both(range))
    };
    assert!(!opens(&large) && few[..4].iter().all(opens) && !opens(&few[4]));
    PAGER.remove(&both(&few[1]), true);
    let another = open(256, 0);
    assert!(opens(&another), "what is given back makes room");
    for range in few.iter().chain([&large, &another]) {
        launch(STREAM);
        DEVICE.write(range.start + 5000, &[77]);
        waited(STREAM);
        PAGER.remove(&both(range), true);
    }
    assert!([&few[0], &few[4], &large, &another].iter().all(|range| get(range.start + 5000) == 77));
}
