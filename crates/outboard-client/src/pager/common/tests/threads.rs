//! What a thread does while another makes memory common, waits or queues work.

use super::*;
use crate::pager::{Brought, Done};

const STREAM: StreamId = StreamId(7);

/// So many ones that a program registered with the first server, which has work with them. They
/// begin within a page.
fn registered(words: usize) -> Range<UnifiedPtr> {
    let bytes = (SKIP as usize + 4 * words).next_multiple_of(PAGE as usize);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, wherever there is room.
    let memory = unsafe { mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE) }.unwrap();
    let whole = UnifiedPtr(memory as u64 + SKIP).range(4 * words as u64);
    *DEVICES[0].base.lock() = memory as u64;
    *DEVICES[0].bytes.lock() = vec![0; bytes];
    *DEVICES[0].is_lost.lock() = false;
    PAGERS[0].connect(Box::new(&DEVICES[0]));
    (whole.start.0..whole.end.0).step_by(4).for_each(|word| store(word, 1));
    // SAFETY: memory of this test, which stays.
    unsafe { PAGERS[0].add_mapped(ctx(0), whole.clone()) }.unwrap();
    PAGERS[0].before_work(ctx(0), STREAM).unwrap();
    PAGERS[0].after_work(ctx(0), STREAM);
    whole
}

/// A thread waits for a server's work while another makes the memory common: what the work has
/// written is there after the wait, wherever it is.
#[test]
fn memory_becomes_common_while_a_wait_ends() {
    let _turn = TURN.lock();
    // So much that the wait ends before all of it has been taken over.
    let whole = registered(2 << 20);
    let written = [whole.start.0 + 4, whole.start.0 + 5 * PAGE];
    let wait = PAGERS[0].before_wait(false);
    written.iter().for_each(|word| DEVICES[0].set_word(*word, 2));
    let (done, is_done) = std::sync::mpsc::channel();
    *DEVICES[0].meanwhile.lock() = Some(Box::new(move || {
        std::thread::spawn(move || {
            PAGERS[0].after_wait(Done::Stream((ctx(0), STREAM)), &wait, &Brought::default());
            done.send(()).unwrap();
        });
        // It comes to wait for the pager.
        std::thread::sleep(Duration::from_millis(20));
    }));
    // This is sent when the memory is taken over.
    store(whole.start.0, 3);
    MEMORY.take_over(part(0), &whole, ctx(0)).unwrap();
    is_done.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(written.map(load), [2, 2]);
    MEMORY.remove(&whole, true);
    assert_eq!(load(whole.start.0), 3);
}

/// What the program writes while memory becomes common is not lost.
#[test]
fn memory_becomes_common_while_it_is_written_to() {
    let _turn = TURN.lock();
    // With whole pages, and without any, but on two.
    for words in [4096, 1500] {
        let whole = registered(words);
        let (early, late) = (whole.start.0 + 4, whole.start.0 + 400);
        *DEVICES[0].meanwhile.lock() = Some(Box::new(move || store(early, 5)));
        store(late, 6);
        MEMORY.take_over(part(0), &whole, ctx(0)).unwrap();
        PAGERS[0].before_work(ctx(0), STREAM).unwrap();
        assert_eq!([early, late].map(|word| DEVICES[0].word(word)), [5, 6]);
        MEMORY.remove(&whole, true);
        assert_eq!([early, late].map(load), [5, 6]);
    }
}

/// A server for whose work a thread has waited gets more from another one meanwhile.
#[test]
fn work_that_is_queued_while_a_wait_ends_counts() {
    let _turn = TURN.lock();
    let whole = registered(4096);
    MEMORY.take_over(part(0), &whole, ctx(0)).unwrap();
    let wait = PAGERS[0].before_wait(false);
    std::thread::scope(|threads| {
        let state = MEMORY.lock();
        threads.spawn(|| {
            PAGERS[0].after_wait(Done::Stream((ctx(0), STREAM)), &wait, &Brought::default())
        });
        let begun = Instant::now();
        while PAGERS[0].is_busy() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the wait does not end");
        }
        // It comes to wait for what is locked here.
        std::thread::sleep(Duration::from_millis(20));
        PAGERS[0].suspect_work(ctx(0));
        drop(state);
    });
    assert!(MEMORY.lock().working.contains(&server(0)));
    MEMORY.remove(&whole, true);
}

/// What the program writes is sent beside what a kernel has written that another thread is queuing.
#[test]
fn work_may_run_before_it_counts() {
    let _turn = TURN.lock();
    let whole = registered(1000);
    let words = [1, 2, 3].map(|word| whole.start.0 + word * 4);
    MEMORY.take_over(part(0), &whole, ctx(0)).unwrap();
    let wait = PAGERS[0].before_wait(false);
    PAGERS[0].after_wait(Done::Stream((ctx(0), STREAM)), &wait, &Brought::default());
    let queuing = PAGERS[0].before_work(ctx(0), STREAM).unwrap();
    DEVICES[0].set_word(words[1], 2);
    store(words[0], 3);
    store(words[2], 3);
    drop(PAGERS[0].before_work(ctx(0), StreamId(8)).unwrap());
    assert_eq!(words.map(|word| DEVICES[0].word(word)), [3, 2, 3]);
    PAGERS[0].after_work(ctx(0), STREAM);
    drop(queuing);
    let wait = PAGERS[0].before_wait(false);
    PAGERS[0].after_wait(Done::Stream((ctx(0), STREAM)), &wait, &Brought::default());
    assert_eq!(words.map(load), [3, 2, 3]);
    MEMORY.remove(&whole, true);
}
