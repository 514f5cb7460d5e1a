//! Pages that come along with the answer to a wait.

use outboard_wire::sum::sum;

use super::*;

pub(super) const OTHER: StreamId = StreamId(8);

/// A wait under way.
pub(super) fn begin() -> Wait {
    PAGER.before_wait(true)
}

/// What the device answers to it at this moment.
fn answer(wait: &Wait) -> Vec<u8> {
    wait.places()
        .iter()
        .flat_map(|(address, bytes)| DEVICE.read(address.0, *bytes as usize))
        .collect()
}

/// Whether the device has what is here, at this moment.
pub(super) fn compared(wait: &Wait) -> Vec<bool> {
    let same = |(address, bytes, known): &(UnifiedPtr, u32, u64)| {
        sum(wait.seed(), &DEVICE.read(address.0, *bytes as usize)) == *known
    };
    wait.known().iter().map(same).collect()
}

fn end(stream: StreamId, wait: &Wait, data: &[u8]) {
    end_with(stream, wait, data, compared(wait));
}

pub(super) fn end_with(stream: StreamId, wait: &Wait, data: &[u8], same: Vec<bool>) {
    PAGER.after_wait(Done::Stream((CTX, stream)), wait, &Brought { data, same });
}

pub(super) fn launch(stream: StreamId) {
    PAGER.before_work(CTX, stream).unwrap();
    PAGER.after_work(CTX, stream);
}

/// A kernel writes a word, and is waited for.
fn answered(address: u64, value: u8) -> usize {
    launch(STREAM);
    DEVICE.write(address, &[value]);
    let wait = begin();
    let data = answer(&wait);
    end(STREAM, &wait, &data);
    data.len()
}

pub(super) fn fetches_by(run: impl FnOnce()) -> u64 {
    let before = DEVICE.fetches.load(Ordering::Relaxed);
    run();
    DEVICE.fetches.load(Ordering::Relaxed) - before
}

/// Memory of which the first page has been touched after a wait.
fn known(pages: u64) -> Range<u64> {
    let range = mapped(pages, 0);
    answered(range.start, 1);
    assert_eq!(fetches_by(|| assert_eq!(get(range.start), 1)), 1);
    range
}

#[test]
fn what_was_touched_after_a_wait_comes_with_the_next() {
    let _turn = turn();
    let range = known(64);
    let mut came = 0;
    for value in 2..50 {
        let touched = fetches_by(|| {
            came = answered(range.start, value);
            assert_eq!(get(range.start), value);
            // What the program writes there goes back, and only that.
            set(range.start + 8, value);
            kernel(|| assert_eq!(DEVICE.read(range.start + 8, 1), [value]));
        });
        assert_eq!(touched, 0, "{value}");
    }
    assert_eq!(came, PAGE as usize, "its neighbours do not come any more");
    PAGER.remove(&both(&range), true);
}

#[test]
fn wasted_pages_hide_nothing_and_end() {
    let _turn = turn();
    let range = known(64);
    let came: Vec<usize> = (2..30).map(|value| answered(range.start, value)).collect();
    assert_eq!((came[0], came[came.len() - 1]), (4 * PAGE as usize, 0), "{came:?}");
    assert_eq!(get(range.start), 29);
    answered(range.start, 30);
    // A kernel that is waited for without anything that comes along.
    kernel(|| DEVICE.write(range.start, &[31]));
    assert_eq!(get(range.start), 31);
    PAGER.remove(&both(&range), true);
}

#[test]
fn much_that_is_touched_does_not_come_along() {
    let _turn = turn();
    let range = mapped(200, 0);
    for value in 1..20 {
        assert_eq!(answered(range.start, value), 0);
        assert!(
            (range.start..range.end)
                .step_by(PAGE as usize)
                .all(|at| get(at) == if at == range.start { value } else { 3 })
        );
    }
    PAGER.remove(&both(&range), true);
}

#[test]
fn what_the_program_writes_meanwhile_stays() {
    let _turn = turn();
    let range = known(8);
    launch(STREAM);
    let wait = begin();
    let data = answer(&wait);
    assert!(!data.is_empty());
    // Another thread writes, and what it has written is sent with work that it queues.
    set(range.start + 16, 77);
    launch(OTHER);
    end(STREAM, &wait, &data);
    assert_eq!((get(range.start + 16), DEVICE.read(range.start + 16, 1)), (77, vec![77]));
    let wait = begin();
    end(OTHER, &wait, &answer(&wait));
    assert_eq!(get(range.start + 16), 77);
    PAGER.remove(&both(&range), true);
}

#[test]
fn what_is_older_than_another_wait_is_not_taken() {
    let _turn = turn();
    let range = known(8);
    for (brings, value) in [(true, 8), (false, 9)] {
        launch(STREAM);
        launch(OTHER);
        let first = begin();
        let old = answer(&first);
        assert!(!old.is_empty());
        DEVICE.write(range.start, &[value]);
        // Another thread waits for what has written that, and is answered before this one goes on.
        let second = PAGER.before_wait(brings);
        end(OTHER, &second, &answer(&second));
        end(STREAM, &first, &old);
        assert_eq!(get(range.start), value);
    }
    PAGER.remove(&both(&range), true);
}

#[test]
fn what_comes_while_the_device_works_is_not_kept() {
    let _turn = turn();
    let range = known(8);
    launch(STREAM);
    launch(OTHER);
    let wait = begin();
    let data = answer(&wait);
    assert!(!data.is_empty());
    end(STREAM, &wait, &data);
    // A kernel of the other stream sets a flag after that; the program looks only once.
    DEVICE.write(range.start, &[5]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(get(range.start), 5);
    let wait = PAGER.before_wait(false);
    PAGER.after_wait(Done::Context(CTX), &wait, &Brought::default());
    PAGER.remove(&both(&range), true);
}

#[test]
fn memory_that_took_the_place_of_what_was_there_gets_nothing() {
    let _turn = turn();
    let range = known(8);
    launch(STREAM);
    let wait = begin();
    let data = answer(&wait);
    PAGER.remove(&both(&range), true);
    set(range.start, 11);
    end(STREAM, &wait, &data);
    assert_eq!(get(range.start), 11);
    PAGER.lock().opens.limit(Some(0));
    // SAFETY: memory that is never given back.
    unsafe { PAGER.add_mapped(CTX, both(&range)) }.unwrap();
    PAGER.lock().opens.limit(None);
    launch(STREAM);
    end(STREAM, &wait, &data);
    assert_eq!(get(range.start), 11);
    for short in [&data[1..], &[]] {
        launch(STREAM);
        end(STREAM, &wait, short);
        assert_eq!(get(range.start), 11);
    }
    PAGER.remove(&both(&range), true);
}

/// Threads that write words of their own while others launch and wait: no write is lost, and none
/// comes late.
#[test]
fn threads_wait_while_others_write() {
    const ROUNDS: u8 = 100;
    let _turn = turn();
    let range = mapped(4, 0);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let range = &range;
            scope.spawn(move || {
                let (own, devices) = (range.start + 64 * thread + 4, range.start + 64 * thread + 8);
                for round in 1..=ROUNDS {
                    set(own, round);
                    PAGER.before_work(CTX, StreamId(100 + thread)).unwrap();
                    assert_eq!(
                        DEVICE.read(own, 1),
                        [round],
                        "what was written is there for the kernel"
                    );
                    DEVICE.write(devices, &[round]);
                    PAGER.after_work(CTX, StreamId(100 + thread));
                    let wait = begin();
                    let data = answer(&wait);
                    std::thread::yield_now();
                    end(StreamId(100 + thread), &wait, &data);
                    assert_eq!(
                        (get(devices), get(own)),
                        (round, round),
                        "what was waited for is there for the program"
                    );
                }
            });
        }
    });
    PAGER.remove(&both(&range), true);
}

#[test]
fn edges_come_along() {
    let _turn = turn();
    let range = mapped(3, 1000);
    PAGER.lock().looks.pause(true);
    for value in 10..20 {
        let fetches = fetches_by(|| {
            answered(range.start, value);
            answered(range.end - 1, value);
        });
        assert_eq!((get(range.start), get(range.end - 1), fetches), (value, value, 0));
    }
    PAGER.lock().looks.pause(false);
    // What is written there meanwhile, and sent with work that another thread queues, stays.
    launch(STREAM);
    DEVICE.write(range.end - 1, &[30]);
    let wait = begin();
    let data = answer(&wait);
    set(range.start, 40);
    launch(OTHER);
    end(STREAM, &wait, &data);
    assert_eq!((get(range.start), get(range.end - 1)), (40, 30));
    kernel(|| assert_eq!(DEVICE.read(range.start, 1), [40]));
    PAGER.remove(&both(&range), true);
}
