//! Launches of executables that are under way: only through them does a worker reach the program's
//! functions and memory.
//!
//! A launch allows what its nodes need once: each function as often as nodes call it, of each box
//! as many bytes as copies move. The body of a loop may run any number of times; its functions and
//! memory are allowed until the launch ends. A launch that has ended allows nothing.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use outboard_front::backend::{ContextId, HostPtr, StreamId};
use parking_lot::Mutex;

use super::given::{Given, Thing};
use crate::outstanding::{Outstanding, Queued, Work};

/// In a loop.
pub(super) const ANY: u64 = u64::MAX;

/// What one launch of an executable needs: each thing, and how often.
pub(super) type Needs = HashMap<u64, (Arc<Given>, u64)>;

/// A launch that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Launch {
    queued: Queued,
    number: u64,
    of: Arc<Mutex<All>>,
}

#[derive(Debug, Default)]
struct All {
    last: u64,
    launches: BTreeMap<u64, UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    work: Arc<Work>,
    /// What the worker may still request for it: calls or bytes.
    left: HashMap<u64, (Arc<Given>, u64)>,
}

/// All launches under way that need the program.
#[derive(Debug, Default)]
pub(super) struct Launches {
    all: Arc<Mutex<All>>,
    outstanding: Arc<Outstanding>,
}

impl Launches {
    pub(super) fn new(outstanding: Arc<Outstanding>) -> Launches {
        Launches { all: Arc::default(), outstanding }
    }

    /// A launch that needs this is about to be queued.
    pub(super) fn begin(&self, ctx: ContextId, stream: StreamId, needs: &Needs) -> Launch {
        let queued = self.outstanding.begin(ctx, stream);
        let left = needs.iter().map(|(number, (given, times))| {
            (*number, (Arc::clone(given), times.saturating_mul(given.share().max(1))))
        });
        let under_way = UnderWay { work: Arc::clone(queued.work()), left: left.collect() };
        let mut all = self.all.lock();
        all.last += 1;
        let number = all.last;
        all.launches.insert(number, under_way);
        Launch { queued, number, of: Arc::clone(&self.all) }
    }

    pub(super) fn are_any(&self) -> bool {
        !self.all.lock().launches.is_empty()
    }

    /// Does something with a thing that the oldest launch which may still ask for so much of it
    /// needs. `None` if there is no such launch.
    pub(super) fn with<T>(
        &self,
        number: u64,
        is_it: impl Fn(&Thing) -> bool,
        amount: u64,
        act: impl FnOnce(&Thing) -> Option<T>,
    ) -> Option<T> {
        let (work, given) = {
            let mut all = self.all.lock();
            all.launches.values_mut().filter(|launch| !launch.work.is_over()).find_map(|launch| {
                let (given, left) = launch.left.get_mut(&number)?;
                if !is_it(&given.thing) || *left < amount {
                    return None;
                }
                if *left != ANY {
                    *left -= amount;
                }
                Some((Arc::clone(&launch.work), Arc::clone(given)))
            })
        }?;
        work.use_it(|| act(&given.thing)).flatten()
    }

    /// The program gives memory up: no launch may ask for it any more.
    pub(super) fn gone(&self, range: &Range<HostPtr>) {
        let mut meant = Vec::new();
        {
            let mut all = self.all.lock();
            for launch in all.launches.values_mut() {
                let before = launch.left.len();
                launch.left.retain(|_, (given, _)| match &given.thing {
                    Thing::Call(_) => true,
                    Thing::Source(memory) | Thing::Destination(memory) => !memory.meets(range),
                });
                if launch.left.len() < before {
                    meant.push(Arc::clone(&launch.work));
                }
            }
        }
        // Whoever reads or writes it has finished.
        for work in meant {
            let _ = work.use_it(|| ());
        }
    }
}

impl Launch {
    /// The command that launches has this number.
    pub(crate) fn is(&self, seq: u64) {
        self.queued.is(seq);
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // It may have held the last reference: that goes without the lock.
        let _gone = self.of.lock().launches.remove(&self.number);
    }
}
