use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId};
use parking_lot::Mutex;

use super::{Lane, Scheduler, Ticket};
use crate::work::{Condition, Word, Work};

const CTX: ContextId = ContextId(1);
const MOST_QUEUED: usize = 1 << 12;
const LEGACY: Lane = Lane::Legacy(CTX);

fn lane(number: u64) -> Lane {
    Lane::Created(ObjectId(number))
}

/// A scheduler with blocking lanes 1 to 4 and the non-blocking lane 9.
fn scheduler() -> &'static Scheduler {
    with_lanes(Scheduler::new(|_, _| {}, MOST_QUEUED))
}

fn with_lanes(scheduler: Scheduler) -> &'static Scheduler {
    let scheduler: &'static Scheduler = Box::leak(Box::new(scheduler));
    scheduler.open(CTX);
    for number in 1..=4 {
        scheduler.add_lane(CTX, lane(number), true, number == 4).unwrap();
    }
    scheduler.add_lane(CTX, lane(9), false, false).unwrap();
    scheduler
}

/// A word in memory that lanes wait for.
struct Gate(Box<AtomicU32>);

impl Gate {
    fn new() -> Gate {
        Gate(Box::new(AtomicU32::new(0)))
    }

    fn wait(&self) -> Work {
        Work::Wait(
            Word { address: self.0.as_ptr() as u64, value: 1, wide: false },
            Condition::AtLeast,
        )
    }

    fn open(&self) {
        self.0.store(1, Ordering::SeqCst);
    }
}

/// Work that notes its name.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<&'static str>>>);

impl Journal {
    fn note(&self, name: &'static str) -> Work {
        let journal = self.0.clone();
        Work::Call(Box::new(move || journal.lock().push(name)))
    }

    fn taken(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }
}

fn submit(scheduler: &'static Scheduler, lane: Lane, work: Work) -> Ticket {
    scheduler.submit(CTX, lane, work, None).unwrap()
}

fn synchronize(scheduler: &'static Scheduler) {
    scheduler.wait_all(scheduler.pending(CTX));
}

#[test]
fn work_that_nothing_is_before_is_done_at_once() {
    let scheduler = scheduler();
    let journal = Journal::default();
    let here = |lane, name| scheduler.submit_or_run(CTX, lane, journal.note(name)).unwrap();
    here(lane(9), "free");
    assert_eq!(journal.taken(), ["free"]);
    assert!(scheduler.pending(CTX).is_empty());
    let gate = Gate::new();
    submit(scheduler, lane(1), gate.wait());
    here(LEGACY, "behind");
    here(lane(9), "beside");
    assert_eq!(journal.taken(), ["free", "beside"]);
    gate.open();
    synchronize(scheduler);
    assert_eq!(journal.taken(), ["free", "beside", "behind"]);
}

#[test]
fn a_lane_keeps_its_order() {
    let scheduler = scheduler();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for number in 0..1000 {
        let seen = seen.clone();
        submit(scheduler, lane(1), Work::Call(Box::new(move || seen.lock().push(number))));
    }
    synchronize(scheduler);
    assert_eq!(*seen.lock(), (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_green_contexts_default_lane_waits_for_its_blocking_lanes_and_they_for_it() {
    let scheduler = scheduler();
    let (green, other) = (ObjectId(1 << 40), ObjectId(2 << 40));
    scheduler.join(lane(1), green, false).unwrap();
    scheduler.join(lane(2), green, false).unwrap();
    scheduler.join(lane(3), other, false).unwrap();
    scheduler.join(lane(9), green, true).unwrap();
    let (gate, journal) = (Gate::new(), Journal::default());
    submit(scheduler, lane(1), gate.wait());
    submit(scheduler, lane(1), journal.note("before"));
    let default = submit(scheduler, lane(9), journal.note("default"));
    let after = submit(scheduler, lane(2), journal.note("after"));
    let elsewhere = submit(scheduler, lane(3), journal.note("another one's"));
    scheduler.wait(elsewhere);
    assert!(
        journal.taken() == ["another one's"]
            && !scheduler.is_done(default)
            && !scheduler.is_done(after)
    );
    gate.open();
    synchronize(scheduler);
    assert_eq!(journal.taken(), ["another one's", "before", "default", "after"]);
}

#[test]
fn the_legacy_lane_waits_for_blocking_lanes_and_they_for_it() {
    let scheduler = scheduler();
    let (gate, journal) = (Gate::new(), Journal::default());
    submit(scheduler, lane(1), gate.wait());
    submit(scheduler, lane(1), journal.note("before"));
    submit(scheduler, LEGACY, journal.note("legacy"));
    let after = submit(scheduler, lane(2), journal.note("after"));
    let free = submit(scheduler, lane(9), journal.note("non-blocking"));
    scheduler.wait(free);
    assert_eq!(journal.taken(), ["non-blocking"]);
    assert!(!scheduler.is_done(after));
    gate.open();
    synchronize(scheduler);
    assert_eq!(journal.taken(), ["non-blocking", "before", "legacy", "after"]);
}

#[test]
fn lanes_run_at_the_same_time() {
    let scheduler = scheduler();
    // Each of the four waits for the others: none could finish alone.
    let arrived = Arc::new(AtomicUsize::new(0));
    for number in [1, 2, 3, 9] {
        let arrived = arrived.clone();
        let work = move || {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 4 {
                thread::yield_now();
            }
        };
        submit(scheduler, lane(number), Work::Call(Box::new(work)));
    }
    synchronize(scheduler);
}

#[test]
fn a_wait_for_a_ticket_holds_the_lane() {
    let scheduler = scheduler();
    let (gate, journal) = (Gate::new(), Journal::default());
    submit(scheduler, lane(1), gate.wait());
    let first = submit(scheduler, lane(1), journal.note("first"));
    // Submitted after the ticket was taken: nobody waits for it.
    let second_gate = Gate::new();
    submit(scheduler, lane(1), second_gate.wait());
    scheduler.submit(CTX, lane(2), Work::Nothing, Some(first)).unwrap();
    let second = submit(scheduler, lane(2), journal.note("second"));
    gate.open();
    scheduler.wait(second);
    assert_eq!(journal.taken(), ["first", "second"]);
    second_gate.open();
    synchronize(scheduler);
}

#[test]
fn failure_drops_what_is_queued_and_lets_waiters_go() {
    let scheduler = scheduler();
    scheduler.open(ContextId(2));
    let journal = Journal::default();
    let never = Gate::new();
    let polling = submit(scheduler, lane(1), never.wait());
    submit(scheduler, lane(1), journal.note("dropped"));
    let legacy = submit(scheduler, LEGACY, journal.note("dropped"));
    let waiter = thread::spawn(move || scheduler.wait(legacy));
    // Another context that waits for this one.
    let other = Lane::Legacy(ContextId(2));
    scheduler.submit(ContextId(2), other, journal.note("other"), Some(polling)).unwrap();

    let error = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    {
        let mut state = scheduler.state.lock();
        state.fail(CTX, error);
        scheduler.kick(&mut state);
    }
    waiter.join().unwrap();
    synchronize(scheduler);
    scheduler.wait_all(scheduler.pending(ContextId(2)));
    assert_eq!(journal.taken(), ["other"]);
    assert_eq!(scheduler.check(CTX), Err(error));
    assert_eq!(scheduler.submit(CTX, lane(2), Work::Nothing, None), Err(error));
    assert_eq!(scheduler.check(ContextId(2)), Ok(()));
}

#[test]
fn close_drops_what_has_not_begun_and_waits_for_what_has() {
    let scheduler = scheduler();
    let journal = Journal::default();
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (work_begun, work_go, note) = (begun.clone(), go.clone(), journal.0.clone());
    let work = move || {
        work_begun.store(true, Ordering::SeqCst);
        while !work_go.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        note.lock().push("begun");
    };
    submit(scheduler, lane(1), Work::Call(Box::new(work)));
    submit(scheduler, lane(1), journal.note("dropped"));
    while !begun.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let closer = thread::spawn(move || scheduler.close(CTX));
    while scheduler.check(CTX).is_ok() {
        thread::yield_now();
    }
    go.store(true, Ordering::SeqCst);
    closer.join().unwrap();
    assert_eq!(journal.taken(), ["begun"]);
    assert_eq!(scheduler.check(CTX), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
}

#[test]
fn a_removed_lane_finishes_its_work() {
    let scheduler = scheduler();
    let (gate, journal) = (Gate::new(), Journal::default());
    submit(scheduler, lane(1), gate.wait());
    let ticket = submit(scheduler, lane(1), journal.note("done"));
    scheduler.remove_lane(lane(1)).unwrap();
    assert!(!scheduler.is_done(ticket));
    gate.open();
    scheduler.wait(ticket);
    assert_eq!(journal.taken(), ["done"]);
    assert_eq!(scheduler.remove_lane(lane(1)), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
}

#[test]
fn synchronous_work_runs_on_the_caller_when_it_can() {
    let scheduler = scheduler();
    let ran_on = Arc::new(Mutex::new(None));
    let note = ran_on.clone();
    let work = move || *note.lock() = Some(thread::current().id());
    scheduler.run(CTX, LEGACY, Work::Call(Box::new(work.clone()))).unwrap();
    assert_eq!(*ran_on.lock(), Some(thread::current().id()));

    let gate = Gate::new();
    submit(scheduler, lane(1), gate.wait());
    let caller = thread::spawn(move || scheduler.run(CTX, LEGACY, Work::Call(Box::new(work))));
    while scheduler.pending(CTX).len() < 2 {
        thread::yield_now();
    }
    gate.open();
    caller.join().unwrap().unwrap();
    assert_ne!(*ran_on.lock(), Some(thread::current().id()));
}

#[test]
fn many_threads_many_lanes() {
    let scheduler = scheduler();
    let counter = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let counter = &counter;
            scope.spawn(move || {
                let own = lane(100 + thread);
                scheduler.add_lane(CTX, own, thread % 2 == 0, false).unwrap();
                for round in 0..500 {
                    let target = if round % 7 == 0 { LEGACY } else { own };
                    let counter = counter.clone();
                    let work = Work::Call(Box::new(move || {
                        counter.fetch_add(1, Ordering::SeqCst);
                    }));
                    match round % 50 {
                        0 => scheduler.run(CTX, target, work).unwrap(),
                        _ => drop(scheduler.submit(CTX, target, work, None).unwrap()),
                    }
                }
                scheduler.remove_lane(own).unwrap();
            });
        }
    });
    synchronize(scheduler);
    assert_eq!(counter.load(Ordering::SeqCst), 8 * 500);
    assert!(scheduler.pending(CTX).is_empty());
}

#[test]
fn a_full_lane_has_who_submits_wait() {
    const MORE: usize = 1000;
    let (scheduler, gate) = (scheduler(), Gate::new());
    scheduler.submit(CTX, lane(9), gate.wait(), None).unwrap();
    let (submitted, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, ran) = (Arc::clone(&submitted), Arc::clone(&done));
    let submitter = thread::spawn(move || {
        for _ in 0..MOST_QUEUED + MORE {
            let ran = Arc::clone(&ran);
            let work = Work::Call(Box::new(move || _ = ran.fetch_add(1, Ordering::SeqCst)));
            scheduler.submit(CTX, lane(9), work, None).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    while submitted.load(Ordering::SeqCst) < MOST_QUEUED - 1 {
        thread::yield_now();
    }
    thread::sleep(std::time::Duration::from_millis(50));
    assert!(submitted.load(Ordering::SeqCst) <= MOST_QUEUED + 1 && !submitter.is_finished());
    gate.open();
    submitter.join().unwrap();
    scheduler.wait_all(scheduler.pending(CTX));
    assert_eq!(done.load(Ordering::SeqCst), MOST_QUEUED + MORE);
}

#[test]
fn all_is_done_by_the_only_thread_that_the_system_has_room_for() {
    static ROOM: AtomicUsize = AtomicUsize::new(1);
    let start = |name, body| {
        let taken =
            ROOM.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| room.checked_sub(1));
        taken.is_ok() && super::exec::start(name, body)
    };
    let scheduler = with_lanes(Scheduler { start, ..Scheduler::new(|_, _| {}, MOST_QUEUED) });
    let (gate, journal) = (Gate::new(), Journal::default());
    submit(scheduler, lane(9), journal.note("beside"));
    synchronize(scheduler);
    // Long enough that the executor sleeps. Nothing is before the wait, so that the caller's thread
    // finds that it is to be polled for.
    thread::sleep(std::time::Duration::from_millis(5));
    submit(scheduler, lane(1), gate.wait());
    submit(scheduler, lane(1), journal.note("behind"));
    for _ in 0..9 {
        submit(scheduler, lane(9), journal.note("beside"));
    }
    scheduler.wait_all(scheduler.lane_pending(CTX, lane(9)).unwrap());
    assert_eq!(journal.taken(), ["beside"; 10]);
    gate.open();
    synchronize(scheduler);
    assert_eq!(journal.taken().last(), Some(&"behind"));
}

#[test]
fn nothing_is_queued_that_nobody_would_run() {
    let start = |_, _| false;
    let scheduler = with_lanes(Scheduler { start, ..Scheduler::new(|_, _| {}, MOST_QUEUED) });
    let journal = Journal::default();
    let outcome = scheduler.submit(CTX, lane(1), journal.note("never"), None);
    assert_eq!(outcome.err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    let outcome = scheduler.submit_or_run(CTX, lane(1), journal.note("never"));
    assert_eq!(outcome.err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert!(scheduler.pending(CTX).is_empty() && journal.taken().is_empty());
}
