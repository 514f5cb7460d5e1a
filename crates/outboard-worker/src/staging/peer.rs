//! Copies between this server's devices and those of another one: this worker's half.
//!
//! One of the two halves leads: the copy is part of the work of its stream, which stands still from
//! the copy's turn until the bytes are where they belong. The other half's stream only keeps its
//! context busy, so that memory that the program frees stays until then.
//!
//! As a rule a half is queued whole when it is announced: the leader's in its stream, the other
//! one's in a stream of the worker's own. From then on flags alone move it, without any call of the
//! driver: the dispatcher may be in one that returns only when this copy is done, such as one that
//! loads code. If a half finds no memory, or too much stands still already, it starts later:
//!
//! 1. The leader's stream comes to the copy. A leader with the source says so (`Reached`).
//! 2. The destination takes staging memory and grants the first chunks.
//! 3. Only then does the source take memory. So memory of sources waits for nothing but the link,
//!    and that of destinations only for sources.
//! 4. The destination says that all bytes are in place (`Done`), and the leader's stream goes on.
//!
//! Copies that are queued whole leave memory for one that starts later.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_session::chunks::Cut;
use outboard_session::groups::Groups;
use outboard_wire::limits::WINDOW;

use super::account::{Class, Share, Ticket};
use super::deferred::{DeferredCopy, ExclusiveStream};
use super::incoming::{Emptying, In, Reached};
use super::line::Turn;
use super::memory::ReservedOperations;
use super::outgoing::{Filling, Out};
use super::starting::{self, InStream, OwnStream, Progress, Stage, StartReport, StartsLater};
use super::transfer::{CopySite, DeviceSide, Failed};
use super::watch::{CopyDescription, Moving, Step, Watched};
use crate::io::{Half, Sink};

/// A copy to or from a peer, as the client has announced it.
pub(crate) struct PeerCopy {
    pub(crate) number: u64,
    pub(crate) cut: Cut,
    /// Whether the stream is the one whose work the copy is part of.
    pub(crate) leads: bool,
    pub(crate) half: Arc<Half>,
}

/// Which end of the copy is here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

/// A copy under way.
struct Crossing {
    own: DeferredCopy,
    end: End,
    leads: bool,
    half: Arc<Half>,
    /// What its stream stands still for, if not for the bytes themselves.
    turn: Option<Turn>,
    /// Of one that starts later.
    ticket: Option<Ticket>,
}

/// The watcher's part of it.
struct Watching {
    copy: Arc<Crossing>,
    phase: Phase,
    /// Whether the peer has been told that the stream has come.
    told: bool,
    gave_up: bool,
    /// Whether the program is to be told if nothing comes of it.
    reports: bool,
    /// Whether all bytes are in place.
    is_stored: bool,
    /// A source that is queued and waits for the peer to want it.
    waits_to_go: Option<Arc<Out>>,
}

enum Phase {
    /// It waits for its turn, for the peer and for memory, or moves.
    Under(Progress),
    /// All bytes have been sent: for the peer to say that they are in place.
    Settling,
}

/// Queues the sending of a copy whose source is here.
pub(crate) fn copy_to_peer(
    site: &CopySite<'_>,
    copy: PeerCopy,
    target: &DeviceSide,
) -> Result<(), Failed> {
    queue(site, copy, target, End::Source)
}

/// Queues the storing of a copy whose destination is here.
pub(crate) fn copy_from_peer(
    site: &CopySite<'_>,
    copy: PeerCopy,
    target: &DeviceSide,
) -> Result<(), Failed> {
    site.bulk.expect(copy.number, copy.cut).map_err(Failed::Violation)?;
    let number = copy.number;
    queue(site, copy, target, End::Destination).inspect_err(|_| site.bulk.withdraw(number))
}

impl End {
    fn class(self) -> Class {
        match self {
            End::Source => Class::Leaving,
            End::Destination => Class::Arriving,
        }
    }
}

fn queue(site: &CopySite<'_>, copy: PeerCopy, target: &DeviceSide, end: End) -> Result<(), Failed> {
    match Ahead::reserve(site, &copy, end).map_err(Failed::NotStarted)? {
        Some(ahead) => queue_whole(site, copy, target, end, ahead),
        None => queue_later(site, copy, target, end),
    }
}

/// Operations of a copy that is queued whole, at most: the driver has a caller wait whose stream
/// holds some more.
pub(super) const MAX_OPERATIONS_AHEAD: usize = 600;

/// What a half has that is queued whole.
struct Ahead {
    groups: Groups,
    share: Share,
    held: Option<ReservedOperations>,
    /// Its stream, if it does not lead.
    exclusive: Option<ExclusiveStream>,
}

impl Ahead {
    fn reserve(site: &CopySite<'_>, copy: &PeerCopy, end: End) -> Result<Option<Ahead>, CUresult> {
        let CopySite { pool, watcher, .. } = site;
        let (groups, held) = if copy.leads {
            let Some((groups, held)) = pool.reserve_operations(site.stream, copy.cut) else {
                return Ok(None);
            };
            (groups, Some(held))
        } else {
            (Groups::new(copy.cut), None)
        };
        if !groups.fit() || groups.operations() > MAX_OPERATIONS_AHEAD {
            return Ok(None);
        }
        let share = pool.account().try_reserve(end.class(), groups.staging(), watcher);
        let Some(share) = share else { return Ok(None) };
        let mut exclusive = None;
        if !copy.leads {
            exclusive = ExclusiveStream::for_waiting(site.table, pool)?;
            if exclusive.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(Ahead { groups, share, held, exclusive }))
    }
}

fn queue_whole(
    site: &CopySite<'_>,
    copy: PeerCopy,
    target: &DeviceSide,
    end: End,
    ahead: Ahead,
) -> Result<(), Failed> {
    let PeerCopy { number, cut, leads, half } = copy;
    let Ahead { groups, share, held, exclusive } = ahead;
    let stream = exclusive.as_ref().map_or(site.stream, ExclusiveStream::get);
    let there = CopySite { stream, ..*site };
    let transfer = there.transfer(number, groups, Some(share)).map_err(Failed::NotStarted)?;
    let own = DeferredCopy::new(site, number, groups, transfer.view);
    // Bytes may move while the copy is being queued.
    let (moving, queued, waits_to_go): (Box<dyn Moving>, _, _) = match end {
        End::Source => {
            let copy = Out::new(transfer);
            let wait = if leads { Ok(()) } else { copy.queue_wait() };
            let queued = wait.and_then(|()| copy.queue(target));
            if queued.is_err() {
                copy.break_off();
            }
            let waits = (!leads).then(|| Arc::clone(&copy));
            (Box::new(InStream(Filling::new(copy, held), exclusive)), queued, waits)
        }
        End::Destination => {
            let copy = In::new(transfer);
            site.bulk.set_sink(number, Arc::clone(&copy) as Arc<dyn Sink>);
            let (bulk, window) = (site.bulk.clone(), cut.window());
            let grant: Reached = Box::new(move || bulk.grant(number, window));
            let queued = copy.queue(target, leads);
            let mut reached = None;
            if leads {
                reached = Some(grant);
            } else {
                grant();
            }
            (Box::new(InStream(Emptying::new(copy, reached, held), exclusive)), queued, None)
        }
    };
    // A destination that leads stands still for its bytes; any other half does so for its end.
    let turn = match (end, leads) {
        (End::Destination, true) => Ok(None),
        _ => site.pool.line(site).and_then(|line| line.queue(site)).map(Some),
    };
    if let Err(error) = queued.and(turn.as_ref().map(drop).map_err(|error| *error)) {
        own.failures.report(error);
    }
    let turn = turn.unwrap_or_default();
    let copy = Arc::new(Crossing { own, end, leads, half, turn, ticket: None });
    watch(site, copy, Progress::Moving(moving), waits_to_go);
    Ok(())
}

fn queue_later(
    site: &CopySite<'_>,
    copy: PeerCopy,
    target: &DeviceSide,
    end: End,
) -> Result<(), Failed> {
    let PeerCopy { number, cut, leads, half } = copy;
    let groups = Groups::new(cut);
    if !groups.fit() {
        return Err(Failed::NotStarted(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    let ticket = Some(site.pool.account().ticket(end.class()));
    // Before its stream stands still: this waits while memory is freed, which waits for streams.
    let progress = Progress::Waiting(site.watcher.unqueued().add(*target));
    let line = site.pool.line(site).map_err(Failed::NotStarted)?;
    let turn = Some(line.queue(site).map_err(Failed::NotStarted)?);
    let own = DeferredCopy::new(site, number, groups, line.view());
    let copy = Arc::new(Crossing { own, end, leads, half, turn, ticket });
    watch(site, copy, progress, None);
    Ok(())
}

fn watch(
    site: &CopySite<'_>,
    copy: Arc<Crossing>,
    progress: Progress,
    waits_to_go: Option<Arc<Out>>,
) {
    let bytes = copy.own.groups.cut().len();
    let what = CopyDescription { to_device: copy.end == End::Destination, way: "peer", bytes };
    let (told, gave_up, is_stored) = (false, false, false);
    let (phase, reports) = (Phase::Under(progress), copy.leads);
    let watching = Watching { copy, phase, told, gave_up, reports, is_stored, waits_to_go };
    site.watcher.add(Box::new(watching), what);
}

impl Crossing {
    /// Whether the other half has come to nothing, so that this one does before it has begun.
    fn is_off(&self) -> bool {
        match self.end {
            End::Source => self.half.done() == Some(false),
            End::Destination => self.half.is_cancelled() || self.half.reached() == Some(false),
        }
    }

    /// Whether the destination has come to nothing, and will not take any bytes.
    fn is_unwanted(&self) -> bool {
        self.half.done() == Some(false) && self.half.granted() == 0
    }

    /// It has come to nothing before it was started: the other half need not wait for it.
    fn abandon(&self) {
        let DeferredCopy { number, bulk, .. } = &self.own;
        match self.end {
            End::Source => bulk.cancel(*number, 0),
            End::Destination => {
                bulk.withdraw(*number);
                bulk.done(*number, false);
            }
        }
    }
}

impl StartsLater for Crossing {
    fn own(&self) -> &DeferredCopy {
        &self.own
    }

    fn start(
        &self,
        target: &DeviceSide,
        share: Option<Share>,
        report: &StartReport,
    ) -> Result<(), CUresult> {
        let own = &self.own;
        let to_device = self.end == End::Destination;
        // A copy that is larger than its staging memory moves only as its other half does, which
        // may be behind others in its stream.
        let stream = if own.groups.cut().len() > WINDOW as u64 {
            OwnStream::Exclusive(ExclusiveStream::for_copying(own.table(), &own.pool)?)
        } else {
            OwnStream::Shared(own.shared_stream(to_device)?)
        };
        match self.end {
            End::Source => starting::copy_out(own, stream, share, target, report),
            End::Destination => starting::copy_in(own, stream, share, target, report, || {
                own.bulk.grant(own.number, own.groups.cut().window());
            }),
        }
    }
}

impl Watching {
    /// Has the copy started if it is its turn.
    fn begin(&mut self) -> Step {
        let Crossing { own, end, leads, half, turn, ticket } = &*self.copy;
        if *leads && !turn.as_ref().is_none_or(Turn::is_reached) {
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
        let share =
            ticket.as_ref().and_then(|it| it.try_reserve(own.groups.staging(), &own.watcher));
        let Some(share) = share else { return Step::ForBytes };
        match &mut self.phase {
            Phase::Under(progress) => progress.start(&self.copy, Some(share)),
            Phase::Settling => Step::ForBytes,
        }
    }

    fn end(&mut self) -> Step {
        if self.has_failed() {
            self.copy.own.failures.report_loss(&mut self.reports);
        }
        let Crossing { own, turn, .. } = &*self.copy;
        own.bulk.end(own.number);
        if let Some(turn) = turn {
            turn.end();
        }
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

    fn come_to_nothing(&mut self) -> Step {
        self.copy.abandon();
        self.end()
    }
}

impl Watched for Watching {
    fn step(&mut self) -> Step {
        let copy = Arc::clone(&self.copy);
        let lost = copy.half.is_lost();
        let progress = match &mut self.phase {
            Phase::Settling if lost || copy.half.done().is_some() => return self.end(),
            Phase::Settling => return Step::ForBytes,
            Phase::Under(progress) => progress,
        };
        match progress.stage() {
            Stage::Waiting if self.gave_up || lost || copy.is_off() => self.come_to_nothing(),
            Stage::Waiting => self.begin(),
            Stage::Starting => Step::ForDevice,
            Stage::Failed => self.come_to_nothing(),
            Stage::Moving(moving) => {
                if copy.end == End::Destination && (lost || copy.half.is_cancelled()) {
                    // Its stream may stand still for the bytes, and goes on without them.
                    copy.own.failures.report_loss(&mut self.reports);
                    if copy.half.is_cancelled() {
                        copy.own.bulk.forsake(copy.own.number);
                    }
                    moving.break_off();
                } else if lost || copy.end == End::Source && copy.is_unwanted() {
                    moving.break_off();
                } else if self.gave_up {
                    moving.give_up();
                }
                if let Some(source) = self.waits_to_go.take_if(|_| copy.half.granted() > 0) {
                    source.go();
                }
                let step = moving.step();
                if copy.leads && copy.end == End::Source && !self.told && moving.has_begun() {
                    // A destination that starts later waits for this.
                    self.told = true;
                    copy.own.bulk.reached(copy.own.number, true);
                }
                match step {
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
        }
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.copy.own.liveness_check()
    }

    fn give_up(&mut self) {
        self.gave_up = true;
    }
}
