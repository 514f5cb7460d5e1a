//! What the scheduler's lock guards: plain data and its transitions; nothing here runs work or
//! blocks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, Result};

use super::{Lane, Signal, Ticket};
use crate::work::Work;

/// Work in a lane.
pub(super) struct Node {
    pub(super) work: Work,
    /// Work of other lanes that comes first.
    after: Vec<Ticket>,
}

/// What a lane is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing is queued.
    Idle,
    /// Its first node waits for another lane, where the lane is registered as a waiter.
    Blocked,
    /// Its first node can run; the lane is in [`State::ready`].
    Ready,
    /// A thread runs what was its first node.
    Running,
    /// Its first node waits for a value in memory; the lane is in [`State::polling`].
    Polling,
}

/// Who goes on when a piece of work is done.
pub(super) enum Waiter {
    Lane(Lane),
    Thread(Arc<Signal>),
}

struct Queue {
    ctx: ContextId,
    blocking: bool,
    /// The green context that it is of.
    green: Option<ObjectId>,
    /// It is that one's default lane: blocking lanes there wait for it, and it for them.
    is_default: bool,
    urgent: bool,
    nodes: VecDeque<Node>,
    submitted: u64,
    completed: u64,
    phase: Phase,
    waiters: Vec<(u64, Waiter)>,
    /// To be removed when empty.
    doomed: bool,
}

#[derive(Default)]
struct Context {
    /// The error that ended its work: what is queued is dropped, what is submitted refused.
    error: Option<CUresult>,
    /// Its lanes that have work.
    busy: Vec<Lane>,
}

#[derive(Default)]
pub(super) struct State {
    contexts: HashMap<ContextId, Context>,
    lanes: HashMap<Lane, Queue>,
    /// Lanes whose first node can run.
    pub(super) ready: VecDeque<Lane>,
    /// Lanes whose first node waits for a value in memory.
    pub(super) polling: Vec<Lane>,
    /// Executor threads, and how many of them have been called and not come yet.
    pub(super) executors: usize,
    pub(super) called: usize,
    /// Executors that stay awake for a moment before they sleep.
    pub(super) lingering: usize,
    pub(super) poller_started: bool,
}

impl State {
    pub(super) fn open(&mut self, ctx: ContextId) {
        self.contexts.insert(ctx, Context::default());
        let _ = self.add_lane(ctx, Lane::Legacy(ctx), true, false);
    }

    /// Forgets a context whose work is done.
    pub(super) fn forget(&mut self, ctx: ContextId) {
        self.contexts.remove(&ctx);
        self.lanes.retain(|_, queue| queue.ctx != ctx);
    }

    pub(super) fn check(&self, ctx: ContextId) -> Result<()> {
        match self.contexts.get(&ctx) {
            None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            Some(Context { error: Some(error), .. }) => Err(*error),
            Some(_) => Ok(()),
        }
    }

    /// Ends the work of a context; the first error stays.
    pub(super) fn fail(&mut self, ctx: ContextId, error: CUresult) {
        if let Some(context) = self.contexts.get_mut(&ctx) {
            context.error.get_or_insert(error);
        }
        // What its lanes wait for may never come.
        let waits = |queue: &Queue| {
            queue.ctx == ctx && matches!(queue.phase, Phase::Blocked | Phase::Polling)
        };
        let waiting: Vec<Lane> =
            self.lanes.iter().filter(|(_, queue)| waits(queue)).map(|(&lane, _)| lane).collect();
        self.polling.retain(|lane| !waiting.contains(lane));
        for lane in waiting {
            self.advance(lane);
        }
    }

    /// Why work of the lane's context is to be dropped, if it is.
    pub(super) fn error_of(&self, lane: Lane) -> Option<CUresult> {
        let destroyed = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
        let Some(context) = self.lanes.get(&lane).and_then(|queue| self.contexts.get(&queue.ctx))
        else {
            return Some(destroyed);
        };
        context.error
    }

    pub(super) fn context_of(&self, lane: Lane) -> Option<ContextId> {
        self.lanes.get(&lane).map(|queue| queue.ctx)
    }

    pub(super) fn add_lane(
        &mut self,
        ctx: ContextId,
        lane: Lane,
        blocking: bool,
        urgent: bool,
    ) -> Result<()> {
        self.check(ctx)?;
        let (nodes, waiters) = (VecDeque::new(), Vec::new());
        let phase = Phase::Idle;
        let queue = Queue {
            ctx,
            blocking,
            green: None,
            is_default: false,
            urgent,
            nodes,
            submitted: 0,
            completed: 0,
            phase,
            waiters,
            doomed: false,
        };
        self.lanes.insert(lane, queue);
        Ok(())
    }

    pub(super) fn join(&mut self, lane: Lane, green: ObjectId, is_default: bool) -> Result<()> {
        let queue = self.lanes.get_mut(&lane).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        (queue.green, queue.is_default) = (Some(green), is_default);
        Ok(())
    }

    pub(super) fn remove_lane(&mut self, lane: Lane) -> Result<()> {
        let queue = self.lanes.get_mut(&lane).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        queue.doomed = true;
        if queue.submitted == queue.completed {
            self.lanes.remove(&lane);
        }
        Ok(())
    }

    pub(super) fn is_done(&self, ticket: Ticket) -> bool {
        self.lanes.get(&ticket.lane).is_none_or(|queue| queue.completed >= ticket.number)
    }

    /// What has to be done before the lane takes more work: half of it, if it is full.
    pub(super) fn must_wait_for(&self, lane: Lane, most_queued: usize) -> Option<Ticket> {
        let queue = self.lanes.get(&lane)?;
        (queue.nodes.len() >= most_queued)
            .then(|| Ticket { lane, number: queue.submitted - most_queued as u64 / 2 })
    }

    /// Registers who waits for work that is not done.
    pub(super) fn add_waiter(&mut self, ticket: Ticket, waiter: Waiter) {
        if let Some(queue) = self.lanes.get_mut(&ticket.lane) {
            queue.waiters.push((ticket.number, waiter));
        }
    }

    /// The lanes of a context.
    pub(super) fn lanes(&self, ctx: ContextId) -> Vec<Lane> {
        self.lanes
            .iter()
            .filter(|(_, queue)| queue.ctx == ctx && !queue.doomed)
            .map(|(lane, _)| *lane)
            .collect()
    }

    /// The last work of each lane that has work, among lanes that `which` admits.
    fn tails(&self, ctx: ContextId, which: impl Fn(Lane, &Queue) -> bool) -> Vec<Ticket> {
        let Some(context) = self.contexts.get(&ctx) else { return Vec::new() };
        let busy = context.busy.iter().filter_map(|&lane| {
            let queue = self.lanes.get(&lane)?;
            which(lane, queue).then_some(Ticket { lane, number: queue.submitted })
        });
        busy.collect()
    }

    pub(super) fn pending(&self, ctx: ContextId) -> Vec<Ticket> {
        self.tails(ctx, |_, _| true)
    }

    pub(super) fn lane_pending(&self, ctx: ContextId, lane: Lane) -> Result<Vec<Ticket>> {
        let own = self.lanes.get(&lane).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let heeds = |queue: &Queue| own.is_default && queue.blocking && queue.green == own.green;
        Ok(self.tails(ctx, |other, queue| {
            other == lane || (lane == Lane::Legacy(ctx) && queue.blocking) || heeds(queue)
        }))
    }

    /// Gives `work` its place in the lane. It comes back when nothing is before it: the caller then
    /// runs it, or queues it with [`State::enqueue_ready`].
    pub(super) fn place(
        &mut self,
        ctx: ContextId,
        lane: Lane,
        work: Work,
        extra: Option<Ticket>,
    ) -> Result<(Ticket, Option<Node>)> {
        self.check(ctx)?;
        let legacy = Lane::Legacy(ctx);
        let own = self.lanes.get(&lane).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let mut after = if lane == legacy {
            self.tails(ctx, |other, queue| other != legacy && queue.blocking)
        } else if own.blocking {
            self.tails(ctx, |other, queue| {
                other == legacy || (queue.is_default && queue.green == own.green)
            })
        } else if own.is_default {
            self.tails(ctx, |_, queue| queue.blocking && queue.green == own.green)
        } else {
            Vec::new()
        };
        after.extend(extra.filter(|&ticket| !self.is_done(ticket)));

        let queue = self.lanes.get_mut(&lane).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if queue.submitted == queue.completed
            && let Some(context) = self.contexts.get_mut(&ctx)
        {
            context.busy.push(lane);
        }
        queue.submitted += 1;
        let ticket = Ticket { lane, number: queue.submitted };
        let idle = queue.phase == Phase::Idle;
        let node = Node { work, after };
        if idle && node.after.is_empty() {
            return Ok((ticket, Some(node)));
        }
        queue.nodes.push_back(node);
        if idle {
            self.advance(lane);
        }
        Ok((ticket, None))
    }

    pub(super) fn set_phase(&mut self, lane: Lane, phase: Phase) {
        if let Some(queue) = self.lanes.get_mut(&lane) {
            queue.phase = phase;
        }
    }

    /// Queues a node that can run at once in a lane that is idle.
    pub(super) fn enqueue_ready(&mut self, lane: Lane, node: Node) {
        if let Some(queue) = self.lanes.get_mut(&lane) {
            queue.nodes.push_back(node);
            self.advance(lane);
        }
    }

    /// Decides what a lane does next, when its first node may have changed or come free.
    pub(super) fn advance(&mut self, lane: Lane) {
        let dropped = self.error_of(lane).is_some();
        loop {
            let Some(queue) = self.lanes.get_mut(&lane) else { return };
            let Some(node) = queue.nodes.front_mut() else {
                queue.phase = Phase::Idle;
                return;
            };
            let Some(&ticket) = node.after.last() else { break };
            if !dropped && !self.is_done(ticket) {
                self.set_phase(lane, Phase::Blocked);
                self.add_waiter(ticket, Waiter::Lane(lane));
                return;
            }
            if let Some(node) = self.lanes.get_mut(&lane).and_then(|queue| queue.nodes.front_mut())
            {
                node.after.pop();
            }
        }
        let Some(queue) = self.lanes.get_mut(&lane) else { return };
        queue.phase = Phase::Ready;
        if queue.urgent { self.ready.push_front(lane) } else { self.ready.push_back(lane) }
    }

    /// Takes the first node of a ready lane to run it.
    pub(super) fn take(&mut self, lane: Lane) -> Option<Node> {
        let queue = self.lanes.get_mut(&lane)?;
        queue.phase = Phase::Running;
        queue.nodes.pop_front()
    }

    /// Puts back a node that waits for a value in memory.
    pub(super) fn poll_later(&mut self, lane: Lane, node: Node) {
        if let Some(queue) = self.lanes.get_mut(&lane) {
            queue.nodes.push_front(node);
            queue.phase = Phase::Polling;
            self.polling.push(lane);
        }
    }

    /// Lets the lanes go on whose value has come. Tells whether there was one.
    pub(super) fn poll(&mut self) -> bool {
        let polling = std::mem::take(&mut self.polling);
        let before = polling.len();
        for lane in polling {
            let first = self.lanes.get(&lane).and_then(|queue| queue.nodes.front());
            if first.is_none_or(|node| node.work.is_ready()) {
                self.advance(lane);
            } else {
                self.polling.push(lane);
            }
        }
        self.polling.len() < before
    }

    /// Counts the lane's current node as done and lets go on what waited for it.
    pub(super) fn finish(&mut self, lane: Lane) {
        let Some(queue) = self.lanes.get_mut(&lane) else { return };
        queue.completed += 1;
        let completed = queue.completed;
        let waiters: Vec<_> =
            queue.waiters.extract_if(.., |(number, _)| *number <= completed).collect();
        if queue.submitted == completed {
            if let Some(context) = self.contexts.get_mut(&queue.ctx) {
                context.busy.retain(|&other| other != lane);
            }
            if queue.doomed {
                self.lanes.remove(&lane);
            }
        }
        for (_, waiter) in waiters {
            match waiter {
                // One that had stopped waiting may still be registered.
                Waiter::Lane(lane)
                    if self.lanes.get(&lane).is_some_and(|queue| queue.phase == Phase::Blocked) =>
                {
                    self.advance(lane);
                }
                Waiter::Lane(_) => {}
                Waiter::Thread(signal) => signal.raise(),
            }
        }
    }
}
