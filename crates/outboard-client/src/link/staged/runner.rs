//! The one thread that continues copies that no thread waits for.
//!
//! The device shows its progress by flags, which wake no processor: while the device may make
//! progress, this thread polls all copies in turn, without a pause at first, then ever more rarely,
//! since a stream may be blocked for hours. Without copies, it sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outboard_transport::PEER_CHECK;

use super::areas::{Area, Areas};
use super::copying::{Copying, Step};
use super::crew::Crew;
use super::pauses::pause_after;
use super::streams::Share;

/// How long it looks without a pause.
const BEFORE_PAUSES: Duration = Duration::from_micros(200);

/// Chunks of one copy that are copied before the next copy is looked at.
const TURN: usize = 4;
/// Helpers have left a copy that has not moved for so long.
const HELPERS_LEAVE_AFTER: Duration = Duration::from_micros(100);

/// The thread, as others see it. It is started when first needed.
#[derive(Debug)]
pub(super) struct Runner {
    state: Mutex<RunnerState>,
    wake: Condvar,
    ended: AtomicBool,
    areas: Arc<Areas>,
    crew: Arc<Crew>,
}

#[derive(Debug, Default)]
struct RunnerState {
    new: Vec<Task>,
    started: bool,
    sleeps: bool,
}

/// A copy, and what it has of the shared memory.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) copying: Arc<Copying>,
    pub(super) area: Area,
    share: Share,
    /// When it moved last.
    moved: Option<Instant>,
}

impl Task {
    pub(super) fn new(copying: Arc<Copying>, area: Area, share: Share) -> Task {
        Task { copying, area, share, moved: None }
    }

    /// Does what can be done now. Whether that was anything.
    fn go_on(&mut self, crew: &Arc<Crew>) -> bool {
        let mut any = false;
        for _ in 0..TURN {
            match self.copying.step() {
                Step::Copied => {
                    any = true;
                    if self
                        .moved
                        .replace(Instant::now())
                        .is_none_or(|last| last.elapsed() > HELPERS_LEAVE_AFTER)
                    {
                        self.copying.call(crew);
                    }
                }
                Step::Finished => break,
                Step::NotReady => {
                    if self.copying.check().is_err() {
                        self.copying.stop();
                    }
                    break;
                }
            }
        }
        if any {
            self.share.moved();
        }
        any
    }

    /// Nobody copies any more: the area is free again when the device has let go of it.
    pub(super) fn end(self, areas: &Areas) {
        let Task { copying, area, share, .. } = self;
        copying.let_pass();
        areas.give_back_when(area, move || {
            // Its stream holds it until then, too.
            let _ = &share;
            copying.state()
        });
    }
}

impl Runner {
    pub(super) fn new(areas: Arc<Areas>, crew: Arc<Crew>) -> Arc<Runner> {
        let (state, wake, ended) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        Arc::new(Runner { state, wake, ended, areas, crew })
    }

    fn state(&self) -> MutexGuard<'_, RunnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link is gone: copies end, and then the thread.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        drop(self.state());
        self.wake.notify_all();
    }

    /// Whether there is such a thread.
    pub(super) fn is_there(self: &Arc<Runner>) -> bool {
        let mut state = self.state();
        if !state.started {
            let runner = Arc::clone(self);
            state.started =
                outboard_threads::start("outboard-copies", move || runner.run()).is_ok();
        }
        state.started
    }

    /// Goes on with a copy until it has ended.
    pub(super) fn add(&self, task: Task) {
        let mut state = self.state();
        state.new.push(task);
        let sleeps = state.sleeps;
        drop(state);
        if sleeps {
            self.wake.notify_one();
        }
    }

    fn run(&self) {
        let mut tasks: Vec<Task> = Vec::new();
        let (mut moved, mut looked) = (Instant::now(), Duration::ZERO);
        loop {
            let before = tasks.len();
            tasks.append(&mut self.state().new);
            let mut any = tasks.len() > before;
            for task in &mut tasks {
                any |= task.go_on(&self.crew);
            }
            for task in tasks.extract_if(.., |task| task.copying.has_ended()) {
                any = true;
                task.end(&self.areas);
            }
            if any {
                (moved, looked) = (Instant::now(), Duration::ZERO);
                continue;
            }
            let still = moved.elapsed();
            if still < BEFORE_PAUSES {
                // Others may need the processor for what this thread waits for.
                std::thread::yield_now();
                continue;
            }
            let Some(first) = tasks.first() else {
                if self.ended.load(Ordering::Acquire) {
                    return;
                }
                self.pause(None);
                (moved, looked) = (Instant::now(), Duration::ZERO);
                continue;
            };
            if still >= looked + PEER_CHECK {
                looked = still;
                first.copying.shared().check_for_life(PEER_CHECK);
            }
            self.pause(Some(pause_after(still)));
        }
    }

    /// Sleeps for as long, or until there is something new.
    fn pause(&self, pause: Option<Duration>) {
        let mut state = self.state();
        if !state.new.is_empty() || (pause.is_none() && self.ended.load(Ordering::Acquire)) {
            return;
        }
        state.sleeps = true;
        let mut state = match pause {
            Some(pause) => {
                self.wake.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.sleeps = false;
    }
}

#[cfg(test)]
mod tests {
    use outboard_session::groups::BLOCK;
    use outboard_wire::{ContextId, StreamId};
    use proptest::prelude::*;

    use super::super::copying::tests::{Fixture, device, fixture};
    use super::super::streams::Streams;
    use super::*;
    use crate::link::bulk::Direction;

    fn runner(helpers: usize) -> Arc<Runner> {
        let runner = Runner::new(Arc::new(Areas::new(BLOCK)), Crew::new(helpers));
        assert!(runner.is_there());
        runner
    }

    fn add(runner: &Runner, copying: &Arc<Copying>) {
        let share = Arc::new(Streams::default()).share((ContextId(1), StreamId(7)), 1, 1).unwrap();
        let area = runner.areas.take(1 << 10).expect("there is room");
        runner.add(Task::new(Arc::clone(copying), area, share));
    }

    fn end(runner: &Runner) {
        runner.end();
        runner.crew.end();
    }

    /// A copy, its memory, and what is to be there afterwards.
    struct One {
        fixture: Fixture,
        copying: Arc<Copying>,
        host: Vec<u8>,
        direction: Direction,
        value: u8,
    }

    impl One {
        fn new(direction: Direction, len: usize, value: u8) -> One {
            let mut fixture = fixture(direction, len as u64, 128 << 10);
            let up = direction == Direction::Up;
            let mut host = vec![if up { value } else { 0 }; len];
            fixture.device.fill(if up { 0 } else { value });
            let copying = fixture.copying_behind(direction, host.as_mut_ptr(), &[]);
            One { fixture, copying, host, direction, value }
        }

        fn check(&self) {
            assert!(self.copying.has_ended() && self.copying.has_come());
            let right = vec![self.value; self.host.len()];
            assert!(self.host == right && self.fixture.device == right, "the bytes differ");
        }
    }

    fn wait_for(what: impl Fn() -> bool) {
        let start = Instant::now();
        while !what() {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]
        /// Bytes of many copies arrive, whether or not anybody waits for them.
        #[test]
        fn bytes_arrive(
            copies in proptest::collection::vec((any::<bool>(), 1usize..(18 << 20), any::<bool>()), 1..5),
            helpers in 0usize..3,
        ) {
            let runner = runner(helpers);
            let mut all: Vec<(One, bool)> = (1u8..).zip(copies).map(|(value, (up, len, waits))| {
                let direction = if up { Direction::Up } else { Direction::Down };
                (One::new(direction, len, value), waits)
            }).collect();
            std::thread::scope(|scope| {
                for (one, waits) in &mut all {
                    add(&runner, &one.copying);
                    let (copying, memory) = (Arc::clone(&one.copying), one.fixture.device.as_mut_ptr() as usize);
                    let groups = copying.groups().count();
                    scope.spawn(move || device(&copying, memory as *mut u8, groups));
                    if *waits {
                        one.copying.run(&runner.crew).unwrap();
                    }
                }
                for (one, _) in &all {
                    wait_for(|| one.copying.has_ended() && one.copying.is_over());
                }
            });
            for (one, _) in &all {
                one.check();
            }
            end(&runner);
        }
    }

    #[test]
    fn a_stream_that_stands_still_holds_up_no_other() {
        let runner = runner(1);
        let still = [Direction::Up, Direction::Down].map(|to| One::new(to, 40 << 20, 1));
        for one in &still {
            add(&runner, &one.copying);
        }
        for direction in [Direction::Up, Direction::Down] {
            let mut moves = One::new(direction, 40 << 20, 2);
            add(&runner, &moves.copying);
            let groups = moves.copying.groups().count();
            device(&moves.copying, moves.fixture.device.as_mut_ptr(), groups);
            wait_for(|| moves.copying.has_ended());
            moves.check();
        }
        for one in &still {
            assert!(!one.copying.has_ended());
            assert!(one.direction == Direction::Up || one.host.iter().all(|byte| *byte == 0));
            one.fixture.link.close();
        }
        // With its link a copy ends, and the memory is the program's.
        wait_for(|| still.iter().all(|one| one.copying.has_ended()));
        end(&runner);
    }
}
