//! Work on a file system that may hang, on threads of its own: a few at a time, each for a while.
//!
//! A thread that hangs stays, since nothing ends it; while all do, more work is refused at once.
//! Each share has turns of its own, so that the others need not notice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::refused::Refused;

/// How much work of a share is done at a time.
const AT_ONCE: usize = 2;
/// How much more may wait.
const MOST_WAITING: usize = 64;
/// The longest limit that is kept.
const LONGEST: Duration = Duration::from_secs(86400);
/// Opening and hashing need little, in bytes.
const STACK: usize = 256 << 10;

/// The turns of a share.
pub(crate) struct Turns {
    share: String,
    table: Arc<Table>,
}

#[derive(Default)]
struct Table {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the next turn.
    next: u64,
    /// Those that have begun and not ended.
    begun: BTreeSet<u64>,
    /// Those of them for which nobody waits any more.
    late: BTreeSet<u64>,
    /// How many wait to begin.
    waiting: usize,
}

/// Work that has begun; it ends when this is dropped.
struct Turn {
    number: u64,
    table: Arc<Table>,
}

impl Turns {
    pub(crate) fn new(share: &str) -> Turns {
        Turns { share: share.to_owned(), table: Arc::default() }
    }

    /// Does work on a thread that does nothing else. It waits for its turn for as long as `limit`,
    /// and then for the work for as long; what comes later is dropped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let limit = limit.min(LONGEST);
        let turn = self.begin(limit)?;
        let number = turn.number;
        let (send, receive) = mpsc::sync_channel(1);
        let run = move || {
            // The turn ends only when the outcome can be received.
            let _turn = turn;
            // If nobody receives it, nobody waits any more.
            let _ = send.send(work());
        };
        thread::Builder::new()
            .name("files".to_owned())
            .stack_size(STACK)
            .spawn(run)
            .map_err(|error| Refused::System(error.to_string()))?;
        match receive.recv_timeout(limit) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => {
                self.table.give_up(number);
                Err(self.silent())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Refused::System("its thread has failed".to_owned()))
            }
        }
    }

    fn begin(&self, limit: Duration) -> Result<Turn, Refused> {
        let until = Instant::now() + limit;
        let mut state = self.table.state.lock();
        if state.waiting == MOST_WAITING {
            return Err(self.busy());
        }
        state.waiting += 1;
        let refused = loop {
            if state.late.len() == AT_ONCE {
                break Some(self.silent());
            }
            if state.begun.len() < AT_ONCE {
                break None;
            }
            if self.table.changed.wait_until(&mut state, until).timed_out() {
                break Some(self.busy());
            }
        };
        state.waiting -= 1;
        if let Some(refused) = refused {
            return Err(refused);
        }
        let number = state.next;
        state.next += 1;
        state.begun.insert(number);
        Ok(Turn { number, table: Arc::clone(&self.table) })
    }

    fn silent(&self) -> Refused {
        Refused::Silent { share: self.share.clone() }
    }

    fn busy(&self) -> Refused {
        Refused::Busy { share: self.share.clone() }
    }
}

impl Table {
    fn give_up(&self, number: u64) {
        let mut state = self.state.lock();
        // It may have ended a moment ago.
        if state.begun.contains(&number) {
            state.late.insert(number);
        }
        self.changed.notify_all();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.table.state.lock();
        state.begun.remove(&self.number);
        state.late.remove(&self.number);
        self.table.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    fn is_silent(outcome: &Result<(), Refused>) -> bool {
        *outcome == Err(Refused::Silent { share: "nfs1:/export".into() })
    }

    #[test]
    fn work_has_an_outcome() {
        let turns = Turns::new("nfs1:/export");
        assert_eq!(turns.run(LONG, || Ok(5)), Ok(5));
        assert_eq!(turns.run(Duration::MAX, || Ok(5)), Ok(5));
        let refused = Refused::System("no".into());
        assert_eq!(turns.run(LONG, || Err::<(), _>(Refused::System("no".into()))), Err(refused));
        let failed = turns.run::<()>(LONG, || panic!("a test"));
        assert!(matches!(failed, Err(Refused::System(_))));
        assert_eq!(turns.run(LONG, || Ok(6)), Ok(6));
    }

    #[test]
    fn a_share_that_hangs_is_refused_at_once_and_others_go_on() {
        let (hanging, other) = (Turns::new("nfs1:/export"), Turns::new("nfs2:/export"));
        let away = Arc::new(Barrier::new(AT_ONCE + 1));
        for _ in 0..AT_ONCE {
            let away = Arc::clone(&away);
            let work = move || {
                away.wait();
                Ok(())
            };
            assert!(is_silent(&hanging.run(SHORT, work)));
        }
        let begun = Instant::now();
        for _ in 0..1000 {
            assert!(is_silent(&hanging.run(LONG, || Ok(()))));
        }
        assert_eq!(other.run(LONG, || Ok(())), Ok(()));
        assert!(begun.elapsed() < LONG);
        // The file server is back.
        away.wait();
        while !hanging.table.state.lock().begun.is_empty() {
            thread::yield_now();
        }
        assert_eq!(hanging.run(LONG, || Ok(())), Ok(()));
        assert!(hanging.table.state.lock().late.is_empty());
    }

    #[test]
    fn those_who_wait_learn_that_a_share_hangs() {
        let turns = Arc::new(Turns::new("nfs1:/export"));
        let (_held, hang) = hanging();
        let first: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (turns, hang) = (Arc::clone(&turns), hang.clone());
                thread::spawn(move || turns.run(20 * SHORT, hang))
            })
            .collect();
        while turns.table.state.lock().begun.len() < AT_ONCE {
            thread::yield_now();
        }
        assert!(is_silent(&turns.run(LONG, || Ok(()))));
        assert!(first.into_iter().all(|thread| is_silent(&thread.join().unwrap())));
    }

    /// Work that hangs until the other value is dropped.
    fn hanging() -> (impl Sized, impl FnOnce() -> Result<(), Refused> + Clone + Send + 'static) {
        let (held, away) = mpsc::channel::<()>();
        let away = Arc::new(Mutex::new(away));
        (held, move || {
            let _ = away.lock().recv();
            Ok(())
        })
    }

    #[test]
    fn a_few_work_at_a_time_and_a_few_wait() {
        let turns = Arc::new(Turns::new("nfs1:/export"));
        let (working, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..MOST_WAITING)
            .map(|_| {
                let (turns, working, most) =
                    (Arc::clone(&turns), Arc::clone(&working), Arc::clone(&most));
                thread::spawn(move || {
                    turns.run(LONG, move || {
                        most.fetch_max(
                            working.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        thread::sleep(Duration::from_millis(1));
                        working.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    })
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap().is_ok()));
        assert!(most.load(Ordering::SeqCst) <= AT_ONCE);
        turns.table.state.lock().waiting = MOST_WAITING;
        assert_eq!(turns.run(LONG, || Ok(())), Err(turns.busy()));
    }

    #[test]
    fn who_waits_too_long_is_told_so() {
        let turns = Arc::new(Turns::new("nfs1:/export"));
        let (held, hang) = hanging();
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (turns, hang) = (Arc::clone(&turns), hang.clone());
                thread::spawn(move || turns.run(LONG, hang))
            })
            .collect();
        while turns.table.state.lock().begun.len() < AT_ONCE {
            thread::yield_now();
        }
        assert_eq!(turns.run(SHORT, || Ok(())), Err(turns.busy()));
        drop(held);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap().is_ok()));
    }
}
