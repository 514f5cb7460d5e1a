//! Links between the servers of a process: what goes over them does not pass through the process.
//!
//! A link is made when two servers have something to do with each other for the first time. Both
//! are told of each number of a link before either is told of the next, so that they hear of all
//! numbers in one order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_wire::{ContextId, StreamId};
use parking_lot::Mutex;

use super::{Member, Way};
use crate::backend::{Result, ServerId};

/// After a link could not be made or was lost, this process passes everything on for so long.
const PAUSE: Duration = Duration::from_secs(10);
/// After attempts that took their time, it does so for this many times as long: the program waits
/// for them.
const PAUSE_BY_ATTEMPT: u32 = 20;

/// A number of a link: what it stands for, both servers are told under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The link.
    pub link: u32,
    /// The number; it grows.
    pub number: u64,
    /// Where in the memory that the servers share, if it is there.
    pub place: Option<Place>,
}

/// A place in memory that two linked servers share: where its flags begin, and where its slots do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// See [`Place`].
    pub flags: u64,
    /// See [`Place`]. A signal has none.
    pub slots: u64,
}

/// What a number is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// A copy.
    Copy(CarriedCopy),
    /// Word of an event.
    Signal,
}

/// A copy that goes over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedCopy {
    /// How much it copies.
    pub bytes: u64,
    /// The queue that it belongs to.
    pub queue: CopyQueue,
}

/// The stream whose work copies are, and which end of them it belongs to: each of these copies is
/// over before the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyQueue {
    /// The stream's context.
    pub ctx: ContextId,
    /// The stream.
    pub stream: StreamId,
    /// Whether its context has the destination or the source.
    pub way: Way,
}

/// Memory that two linked servers share.
pub trait Places: Send {
    /// A place for that, which both servers use until they are done with it; `None` if there is
    /// none now.
    fn take(&mut self, what: Carried) -> Option<Place>;
}

/// What a link is: with or without memory that the two servers share.
pub type Linked = Option<Box<dyn Places>>;

/// The links of a process.
pub(super) struct Links {
    pairs: Mutex<Pairs>,
    /// The number of the last link.
    last: AtomicU32,
    /// Bytes that have gone over links.
    bytes: AtomicU64,
    /// Those of them that have gone through memory that the servers share.
    shared: AtomicU64,
    /// Why there is no link between two servers, the first time.
    failure: Mutex<Option<String>>,
}

/// By the place of the first and of the second in the list.
type Pairs = BTreeMap<(ServerId, ServerId), Arc<Mutex<Pair>>>;

/// Two servers.
#[derive(Default)]
enum Pair {
    #[default]
    New,
    Linked(Open),
    /// They are not linked until then.
    Apart(Instant),
}

/// A link.
struct Open {
    link: u32,
    /// Its last number.
    last: u64,
    places: Linked,
}

impl Links {
    pub(super) const fn new() -> Links {
        Links {
            pairs: Mutex::new(BTreeMap::new()),
            last: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            failure: Mutex::new(None),
        }
    }

    /// Bytes that have gone from server to server, and none of them through this process.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Those of them that have gone through memory that both servers share.
    pub(super) fn shared_bytes(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    /// So many have gone under that number.
    pub(super) fn add_bytes(&self, bytes: u64, numbered: Numbered) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if numbered.place.is_some() {
            self.shared.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Why a link could not be made, if one could not.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Tells two servers of something, under a number of their link. `None` if they have no link.
    pub(super) fn tell<S: Member>(
        &self,
        one: (ServerId, &'static S),
        other: (ServerId, &'static S),
        what: Carried,
        tell: impl FnOnce(Numbered) -> Result<()>,
    ) -> Option<Result<()>> {
        self.tell_at(Instant::now(), one, other, what, tell)
    }

    fn tell_at<S: Member>(
        &self,
        now: Instant,
        (one, first): (ServerId, &'static S),
        (other, second): (ServerId, &'static S),
        what: Carried,
        tell: impl FnOnce(Numbered) -> Result<()>,
    ) -> Option<Result<()>> {
        // The first of the list connects to the later one, if it can.
        let ((one, first), (other, second)) = if one < other {
            ((one, first), (other, second))
        } else {
            ((other, second), (one, first))
        };
        let pair = Arc::clone(self.pairs.lock().entry((one, other)).or_default());
        let mut pair = pair.lock();
        if let Pair::Linked(Open { link, .. }) = *pair
            && (first.has_lost_link(link) || second.has_lost_link(link))
        {
            *pair = Pair::Apart(now + PAUSE);
        }
        match *pair {
            Pair::Linked(_) => {}
            Pair::Apart(until) if now < until => return None,
            Pair::New | Pair::Apart(_) => *pair = self.link(now, first, second),
        }
        let Pair::Linked(Open { link, last, places }) = &mut *pair else { return None };
        *last += 1;
        let place = places.as_mut().and_then(|places| places.take(what));
        Some(tell(Numbered { link: *link, number: *last, place }))
    }

    /// Has one of the two connect to the other.
    fn link<S: Member>(&self, now: Instant, first: &'static S, second: &'static S) -> Pair {
        let (started, mut failures) = (Instant::now(), Vec::new());
        for (from, to) in [(first, second), (second, first)] {
            let link = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            match from.link_to(to, link) {
                Ok(places) => return Pair::Linked(Open { link, last: 0, places }),
                Err(failure) => failures.push(failure),
            }
        }
        failures.dedup();
        let failure = failures.join("; the other way: ");
        S::say(&format!(
            "copies between two servers go through this process, as the servers are not linked: {failure}"
        ));
        self.failure.lock().get_or_insert(failure);
        Pair::Apart(now + until_again(started.elapsed()))
    }
}

/// How long after the beginning of an attempt, which took so long, there is another one.
fn until_again(took: Duration) -> Duration {
    PAUSE.max(took * (1 + PAUSE_BY_ATTEMPT))
}

#[cfg(test)]
mod tests;
