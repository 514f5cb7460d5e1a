//! Copies between this server's devices and those of another one: this worker's half.
//!
//! One of the two halves leads: the copy is part of the work of its stream, which stands still from
//! the copy's turn until the bytes are where they belong. The other half's stream only keeps its
//! context busy, so that memory that the program frees stays until then. Streams of the workers'
//! own move the bytes:
//!
//! 1. The leader's stream comes to the copy. A leader with the source says so (`Reached`).
//! 2. The destination takes staging memory and grants the first chunks.
//! 3. Only then does the source take memory. So memory of sources waits for nothing but the link,
//!    and that of destinations only for sources.
//! 4. The destination says that all bytes are in place (`Done`), and the leader's stream goes on.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_session::chunks::Cut;
use outboard_session::groups::Groups;
use outboard_wire::limits::WINDOW;

use super::account::{Class, Share, Ticket};
use super::incoming::{Emptying, In};
use super::line::Turn;
use super::outgoing::{Filling, Out};
use super::own::{LoneStream, Own, Say, Started};
use super::transfer::{Failed, Failing, Place, Target};
use super::watch::{Moving, Step, Watched, What};
use crate::io::{Half, Sink};

/// A copy to or from a peer, as the client has announced it.
pub(crate) struct PeerCopy {
    pub(crate) number: u64,
    pub(crate) cut: Cut,
    /// Whether the stream is the one whose work the copy is part of.
    pub(crate) leads: bool,
    pub(crate) half: Arc<Half>,
}

/// What a program is told whose copy was under way when the link was lost.
const LOST: CUresult = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;

/// Which end of the copy is here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

/// A copy under way.
struct Crossing {
    own: Own,
    end: End,
    leads: bool,
    half: Arc<Half>,
    turn: Turn,
    ticket: Ticket,
}

/// The watcher's part of it.
struct Watching {
    copy: Arc<Crossing>,
    phase: Phase,
    /// Whether the peer has been told that the stream has come.
    told: bool,
    gave_up: bool,
    /// Whether all bytes are in place.
    is_stored: bool,
}

enum Phase {
    /// For its turn, for the peer and for memory.
    Waiting(Target),
    Starting(Started),
    Moving(Box<dyn Moving>),
    /// All bytes have been sent: for the peer to say that they are in place.
    Settling,
}

/// Queues the sending of a copy whose source is here.
pub(crate) fn copy_to_peer(
    place: &Place<'_>,
    copy: PeerCopy,
    target: &Target,
) -> Result<(), Failed> {
    queue(place, copy, target, End::Source)
}

/// Queues the storing of a copy whose destination is here.
pub(crate) fn copy_from_peer(
    place: &Place<'_>,
    copy: PeerCopy,
    target: &Target,
) -> Result<(), Failed> {
    place.bulk.expect(copy.number, copy.cut).map_err(Failed::Violation)?;
    let number = copy.number;
    queue(place, copy, target, End::Destination).inspect_err(|_| place.bulk.withdraw(number))
}

/// Has a stream wait until the peer says that what a number stands for has happened.
pub(crate) fn wait_for_peer(place: &Place<'_>, number: u64, half: &Half) -> Result<(), CUresult> {
    if half.reached() == Some(true) {
        place.bulk.end(number);
        return Ok(());
    }
    let turn = place.pool.line(place)?.queue(place)?;
    let (bulk, failing) = (place.bulk.clone(), Failing::of(place));
    half.when_reached(move |well| {
        bulk.end(number);
        if !well {
            failing.tell(LOST);
        }
        turn.end();
    });
    Ok(())
}

fn queue(place: &Place<'_>, copy: PeerCopy, target: &Target, end: End) -> Result<(), Failed> {
    let PeerCopy { number, cut, leads, half } = copy;
    let groups = Groups::new(cut);
    if !groups.fit() {
        return Err(Failed::NotStarted(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    let class = match end {
        End::Source => Class::Leaving,
        End::Destination => Class::Arriving,
    };
    let ticket = place.pool.account().ticket(class);
    let line = place.pool.line(place).map_err(Failed::NotStarted)?;
    let turn = line.queue(place).map_err(Failed::NotStarted)?;
    let own = Own::new(place, number, groups, line.view());
    let copy = Arc::new(Crossing { own, end, leads, half, turn, ticket });
    let what = What { to_device: end == End::Destination, way: "peer", bytes: cut.len() };
    let phase = Phase::Waiting(*target);
    place.watcher.add(
        Box::new(Watching { copy, phase, told: false, gave_up: false, is_stored: false }),
        what,
    );
    Ok(())
}

impl Crossing {
    /// Whether the other half has come to nothing, so that this one does before it has begun.
    fn is_off(&self) -> bool {
        match self.end {
            End::Source => self.half.done() == Some(false),
            End::Destination => self.half.is_cancelled() || self.half.reached() == Some(false),
        }
    }

    /// It has come to nothing before it was started: the other half need not wait for it.
    fn abandon(&self) {
        let Own { number, bulk, .. } = &self.own;
        match self.end {
            End::Source => bulk.cancel(*number, 0),
            End::Destination => {
                bulk.withdraw(*number);
                bulk.done(*number, false);
            }
        }
    }

    /// Queues the copy in a stream of the worker's own. Called on a helper thread.
    fn start(&self, target: &Target, share: Share, say: &Say) -> Result<(), CUresult> {
        let own = &self.own;
        own.enter()?;
        let to_device = self.end == End::Destination;
        // A copy that is larger than its staging memory moves only as its other half does, which
        // may be behind others in its stream.
        let lone = (own.groups.cut().len() > WINDOW as u64).then(|| own.lone_stream());
        let lone = lone.transpose()?;
        let stream = match &lone {
            Some(lone) => lone.get(),
            None => own.shared_stream(to_device)?,
        };
        let transfer = own.transfer(stream, Some(share))?;
        // Bytes may move while the copy is being queued.
        match self.end {
            End::Source => {
                let copy = Out::new(transfer);
                say.say(Ok(Box::new(InStream(Filling::new(Arc::clone(&copy), None), lone))));
                copy.queue(target)
            }
            End::Destination => {
                let copy = In::new(transfer);
                own.bulk.place(own.number, Arc::clone(&copy) as Arc<dyn Sink>);
                let emptying = Emptying::new(Arc::clone(&copy), None, None);
                say.say(Ok(Box::new(InStream(emptying, lone))));
                own.bulk.grant(own.number, own.groups.cut().window());
                copy.queue(target, false)
            }
        }
    }
}

/// A copy that keeps its stream.
struct InStream<M>(M, Option<LoneStream>);

impl<M: Watched> Watched for InStream<M> {
    fn step(&mut self) -> Step {
        self.0.step()
    }

    fn alive(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.0.alive()
    }

    fn give_up(&mut self) {
        self.0.give_up();
    }
}

impl<M: Moving> Moving for InStream<M> {
    fn is_copied(&self) -> bool {
        self.0.is_copied()
    }

    fn break_off(&mut self) {
        self.0.break_off();
        // What is queued in it passes, but nobody knows when.
        self.1.take().into_iter().for_each(LoneStream::leave);
    }
}

impl Watching {
    /// Has the copy started if it is its turn.
    fn begin(&mut self) -> Step {
        let Crossing { own, end, leads, half, turn, ticket } = &*self.copy;
        if *leads && !turn.has_come() {
            return Step::ForDevice;
        }
        let waits_for_peer = match end {
            End::Source => {
                if *leads && !std::mem::replace(&mut self.told, true) {
                    own.bulk.reached(own.number, true);
                }
                half.granted() == 0
            }
            End::Destination => !*leads && half.reached().is_none(),
        };
        if waits_for_peer {
            return Step::ForBytes;
        }
        let Some(share) = ticket.turn(own.groups.staging(), &own.watcher) else {
            return Step::ForBytes;
        };
        let started = Started::default();
        let say = Say::new(&started, &own.watcher);
        let copy = Arc::clone(&self.copy);
        if let Phase::Waiting(target) = std::mem::replace(&mut self.phase, Phase::Starting(started))
        {
            own.watcher.helpers().run(move || {
                if let Err(error) = copy.start(&target, share, &say) {
                    copy.own.failing.tell(error);
                }
            });
        }
        Step::Moved
    }

    fn end(&self) -> Step {
        let Crossing { own, leads, turn, .. } = &*self.copy;
        if *leads && self.has_failed() {
            own.failing.tell(LOST);
        }
        own.bulk.end(own.number);
        turn.end();
        Step::Ended
    }

    /// Whether it has come to nothing because of the other half or the link.
    fn has_failed(&self) -> bool {
        let Crossing { end, half, .. } = &*self.copy;
        match end {
            End::Source => half.done().map_or(half.is_lost(), |well| !well),
            End::Destination => half.is_cancelled() || half.is_lost() && !self.is_stored,
        }
    }

    fn come_to_nothing(&self) -> Step {
        self.copy.abandon();
        self.end()
    }
}

impl Watched for Watching {
    fn step(&mut self) -> Step {
        let copy = Arc::clone(&self.copy);
        let lost = copy.half.is_lost();
        match &mut self.phase {
            Phase::Waiting(_) if self.gave_up || lost || copy.is_off() => self.come_to_nothing(),
            Phase::Waiting(_) => self.begin(),
            Phase::Starting(started) => match started.take() {
                None => Step::ForDevice,
                Some(Ok(moving)) => {
                    self.phase = Phase::Moving(moving);
                    Step::Moved
                }
                Some(Err(())) => self.come_to_nothing(),
            },
            Phase::Moving(moving) => {
                if copy.end == End::Destination && copy.half.is_cancelled() {
                    copy.own.bulk.forsake(copy.own.number);
                    moving.break_off();
                } else if lost {
                    moving.break_off();
                } else if self.gave_up {
                    moving.give_up();
                }
                match moving.step() {
                    Step::Ended if copy.end == End::Source => {
                        self.phase = Phase::Settling;
                        Step::Moved
                    }
                    Step::Ended => {
                        self.is_stored = moving.is_copied();
                        self.end()
                    }
                    step => step,
                }
            }
            Phase::Settling if lost || copy.half.done().is_some() => self.end(),
            Phase::Settling => Step::ForBytes,
        }
    }

    fn alive(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.copy.own.alive()
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}
