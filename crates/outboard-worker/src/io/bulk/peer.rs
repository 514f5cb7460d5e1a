//! What two workers tell each other beside chunks: what may come, what has come, what has happened.
//!
//! A number stands for a copy or a signal, of which each of the two workers has a half. The client
//! announces the numbers to both in growing order; a worker may hear of a number from its peer
//! before it does from its client. Where two clients announce them ([`Order::Any`]), a worker that
//! has not been told of a number says nothing of it, and does not want to hear of it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use outboard_wire::lane::{LaneHeader, LaneKind};
use parking_lot::Mutex;

use super::Chunk;
use super::lanes::invalid;

/// Numbers of which only the peer has told, at most.
const MOST_EARLY: usize = 64 << 10;

/// Called when a peer has said something about a half.
pub(crate) type Nudge = Arc<dyn Fn() + Send + Sync>;

/// Told whether what a number stands for has happened, or never will.
type Then = Box<dyn FnOnce(bool) + Send>;

/// The order in which numbers are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Order {
    /// Each is larger than the ones before it.
    Growing,
    /// Any.
    Any,
}

/// The worker at the other end of a link, as far as this one has heard of it.
pub(super) struct Peer {
    order: Order,
    numbers: Mutex<Numbers>,
    /// Called once, when the link is lost.
    on_loss: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

#[derive(Default)]
struct Numbers {
    halves: HashMap<u64, Arc<Half>>,
    /// How many of them the client has not announced.
    early: usize,
    /// The last that the client has announced.
    last: u64,
    lost: bool,
}

/// This worker's half of a copy or a signal.
#[derive(Default)]
pub(crate) struct Half {
    granted: AtomicU32,
    reached: AtomicU8,
    done: AtomicU8,
    cancelled: AtomicBool,
    lost: AtomicBool,
    state: Mutex<PeerLinkState>,
}

#[derive(Default)]
struct PeerLinkState {
    /// Chunks that are not granted yet.
    held: Vec<Chunk>,
    nudge: Option<Nudge>,
    then: Option<Then>,
}

/// What a peer has said of how something went.
const WELL: u8 = 1;
const BADLY: u8 = 2;

fn said(outcome: &AtomicU8) -> Option<bool> {
    match outcome.load(Ordering::Acquire) {
        0 => None,
        outcome => Some(outcome == WELL),
    }
}

impl Half {
    /// How many chunks may be sent.
    pub(crate) fn granted(&self) -> u32 {
        self.granted.load(Ordering::Acquire)
    }

    /// Whether what the number stands for has happened on the other server; `false` if it never
    /// will.
    pub(crate) fn reached(&self) -> Option<bool> {
        said(&self.reached)
    }

    /// Whether the bytes of a copy are where they belong; `false` if they never will be.
    pub(crate) fn done(&self) -> Option<bool> {
        said(&self.done)
    }

    /// Whether the rest of a copy will not come.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Whether the link is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Has `then` be told when it has happened, or never will: at once, if that is known.
    pub(crate) fn when_reached(&self, then: impl FnOnce(bool) + Send + 'static) {
        let mut state = self.state.lock();
        match self.reached() {
            None if !self.is_lost() => state.then = Some(Box::new(then)),
            outcome => {
                drop(state);
                then(outcome == Some(true));
            }
        }
    }

    fn note(outcome: &AtomicU8, index: u32) {
        outcome.store(if index == 0 { WELL } else { BADLY }, Ordering::Release);
    }

    fn has_reached(&self, index: u32) {
        let then = {
            let mut state = self.state.lock();
            Half::note(&self.reached, index);
            state.then.take()
        };
        if let Some(then) = then {
            then(index == 0);
        }
    }

    fn lose(&self) {
        let (held, then) = {
            let mut state = self.state.lock();
            self.lost.store(true, Ordering::Release);
            (std::mem::take(&mut state.held), state.then.take())
        };
        drop(held);
        if let Some(then) = then {
            then(false);
        }
        self.nudge();
    }

    fn nudge(&self) {
        let nudge = self.state.lock().nudge.clone();
        if let Some(nudge) = nudge {
            nudge();
        }
    }
}

impl Peer {
    pub(super) fn new(order: Order, on_loss: impl FnOnce() + Send + 'static) -> Peer {
        let on_loss: Box<dyn FnOnce() + Send> = Box::new(on_loss);
        Peer { order, numbers: Mutex::default(), on_loss: Mutex::new(Some(on_loss)) }
    }

    /// The client has announced a number, which belongs to this worker until it
    /// [ends](Peer::end). An error means that the client broke the rules.
    pub(super) fn begin(&self, number: u64, nudge: Nudge) -> io::Result<Arc<Half>> {
        let mut numbers = self.numbers.lock();
        let is_new = match self.order {
            Order::Growing => number > numbers.last,
            Order::Any => !numbers.halves.contains_key(&number),
        };
        if !is_new {
            return Err(invalid("the client uses a number of a link twice"));
        }
        numbers.last = number;
        let lost = numbers.lost;
        let early = numbers.halves.get(&number).map(Arc::clone);
        let half = early.unwrap_or_default();
        if numbers.halves.insert(number, Arc::clone(&half)).is_some() {
            numbers.early -= 1;
        }
        drop(numbers);
        half.state.lock().nudge = Some(nudge);
        if lost {
            half.lose();
        }
        Ok(half)
    }

    /// Nothing more is to be heard of a number.
    pub(super) fn end(&self, number: u64) {
        self.numbers.lock().halves.remove(&number);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.numbers.lock().lost
    }

    /// Holds a chunk back that is not granted.
    pub(super) fn admit(&self, chunk: Chunk) -> Option<Chunk> {
        let half = self.numbers.lock().halves.get(&chunk.header.transfer).map(Arc::clone)?;
        let mut state = half.state.lock();
        if half.is_lost() {
            drop(state);
            return None;
        }
        if chunk.header.index < half.granted() {
            return Some(chunk);
        }
        state.held.push(chunk);
        None
    }

    /// The peer has said this. Returns chunks that may be sent now.
    pub(super) fn hear(&self, header: &LaneHeader) -> io::Result<Vec<Chunk>> {
        let Some(half) = self.half(header.transfer)? else { return Ok(Vec::new()) };
        let mut free = Vec::new();
        match header.kind {
            LaneKind::Grant => {
                let mut state = half.state.lock();
                half.granted.fetch_max(header.index, Ordering::AcqRel);
                let granted = half.granted();
                free = state.held.extract_if(.., |chunk| chunk.header.index < granted).collect();
            }
            LaneKind::Done => Half::note(&half.done, header.index),
            LaneKind::Cancelled => half.cancelled.store(true, Ordering::Release),
            LaneKind::Reached => half.has_reached(header.index),
            LaneKind::Chunk
            | LaneKind::Answer
            | LaneKind::Acknowledge
            | LaneKind::Lend
            | LaneKind::Written
            | LaneKind::Readable
            | LaneKind::Unstaged => {
                return Err(invalid("a peer sends what only a client does"));
            }
        }
        half.nudge();
        Ok(free)
    }

    /// The half of that number; `None` if it has ended.
    fn half(&self, number: u64) -> io::Result<Option<Arc<Half>>> {
        let mut numbers = self.numbers.lock();
        if let Some(half) = numbers.halves.get(&number) {
            return Ok(Some(Arc::clone(half)));
        }
        if self.order == Order::Any || number <= numbers.last || numbers.lost {
            return Ok(None);
        }
        if numbers.early >= MOST_EARLY {
            return Err(invalid("a peer tells of more than its client has announced"));
        }
        numbers.early += 1;
        Ok(Some(Arc::clone(numbers.halves.entry(number).or_default())))
    }

    /// The link is lost.
    pub(super) fn lose(&self) {
        let halves: Vec<_> = {
            let mut numbers = self.numbers.lock();
            numbers.lost = true;
            numbers.halves.values().map(Arc::clone).collect()
        };
        // Before the client hears of any half: what it does next is not to go this way.
        let on_loss = self.on_loss.lock().take();
        if let Some(on_loss) = on_loss {
            on_loss();
        }
        halves.iter().for_each(|half| half.lose());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::origin::Origin;
    use super::*;

    fn nothing() -> Nudge {
        Arc::new(|| ())
    }

    fn peer() -> (Peer, Arc<AtomicUsize>) {
        let losses = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&losses);
        (Peer::new(Order::Growing, move || _ = counted.fetch_add(1, Ordering::Relaxed)), losses)
    }

    fn header(kind: LaneKind, transfer: u64, index: u32) -> LaneHeader {
        LaneHeader { kind, transfer, index, len: 0 }
    }

    fn chunk(transfer: u64, index: u32) -> Chunk {
        let header = LaneHeader { kind: LaneKind::Chunk, transfer, index, len: 0 };
        Chunk { header, from: Origin::Nothing, sent: Box::new(|| ()) }
    }

    #[test]
    fn what_is_early_is_kept_and_what_is_late_is_not() {
        let (peer, _) = peer();
        peer.hear(&header(LaneKind::Reached, 5, 0)).unwrap();
        peer.hear(&header(LaneKind::Grant, 5, 2)).unwrap();
        let half = peer.begin(5, nothing()).unwrap();
        assert_eq!((half.reached(), half.granted(), half.done()), (Some(true), 2, None));
        peer.end(5);
        peer.hear(&header(LaneKind::Done, 5, 0)).unwrap();
        peer.hear(&header(LaneKind::Done, 3, 0)).unwrap();
        assert!(peer.numbers.lock().halves.is_empty());
        assert_eq!(peer.numbers.lock().early, 0);
        assert!(peer.begin(5, nothing()).is_err() && peer.begin(4, nothing()).is_err());
        assert!(peer.begin(6, nothing()).is_ok());
    }

    #[test]
    fn a_peer_cannot_fill_memory_with_numbers() {
        let (peer, _) = peer();
        for number in 1..=MOST_EARLY as u64 {
            peer.hear(&header(LaneKind::Reached, number, 0)).unwrap();
        }
        let more = header(LaneKind::Reached, MOST_EARLY as u64 + 1, 0);
        assert!(peer.hear(&more).is_err());
        peer.begin(1, nothing()).unwrap();
        peer.hear(&more).unwrap();
        assert!(peer.hear(&header(LaneKind::Answer, 1, 0)).is_err());
    }

    #[test]
    fn chunks_wait_until_they_are_granted() {
        let (peer, _) = peer();
        assert!(peer.admit(chunk(1, 0)).is_none(), "nobody has announced it");
        peer.begin(1, nothing()).unwrap();
        assert!(peer.admit(chunk(1, 0)).is_none() && peer.admit(chunk(1, 1)).is_none());
        let free = peer.hear(&header(LaneKind::Grant, 1, 1)).unwrap();
        assert_eq!(free.iter().map(|chunk| chunk.header.index).collect::<Vec<_>>(), [0]);
        // Grants may overtake each other on their lanes.
        assert_eq!(peer.hear(&header(LaneKind::Grant, 1, 3)).unwrap().len(), 1);
        assert!(peer.hear(&header(LaneKind::Grant, 1, 2)).unwrap().is_empty());
        assert!(peer.admit(chunk(1, 2)).is_some() && peer.admit(chunk(1, 3)).is_none());
    }

    #[test]
    fn numbers_of_two_clients_come_in_any_order() {
        let peer = Peer::new(Order::Any, || ());
        peer.begin(7, nothing()).unwrap();
        peer.begin(3, nothing()).unwrap();
        assert!(peer.begin(7, nothing()).is_err());
        peer.hear(&header(LaneKind::Grant, 3, 1)).unwrap();
        assert!(peer.admit(chunk(3, 0)).is_some() && peer.admit(chunk(7, 0)).is_none());
        peer.end(7);
        for unknown in [7, 9] {
            peer.hear(&header(LaneKind::Done, unknown, 0)).unwrap();
        }
        assert_eq!(peer.numbers.lock().halves.len(), 1);
    }

    #[test]
    fn a_loss_is_told_to_all_that_wait_and_once() {
        let (peer, losses) = peer();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = |name| {
            let told = Arc::clone(&told);
            move |well| told.lock().push((name, well))
        };
        let nudges = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&nudges);
        let nudge: Nudge = Arc::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        peer.begin(1, Arc::clone(&nudge)).unwrap().when_reached(tell("waits"));
        peer.begin(2, Arc::clone(&nudge)).unwrap().when_reached(tell("comes"));
        peer.hear(&header(LaneKind::Reached, 2, 0)).unwrap();
        assert!(peer.admit(chunk(1, 0)).is_none());
        peer.lose();
        peer.lose();
        let half = peer.begin(3, nudge).unwrap();
        half.when_reached(tell("late"));
        assert!(half.is_lost() && peer.is_lost() && peer.admit(chunk(1, 1)).is_none());
        assert_eq!(*told.lock(), [("comes", true), ("waits", false), ("late", false)]);
        assert_eq!(losses.load(Ordering::Relaxed), 1);
        assert!(nudges.load(Ordering::Relaxed) >= 3);
    }
}
