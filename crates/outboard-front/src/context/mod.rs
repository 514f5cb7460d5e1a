//! Contexts: the stack of current ones, primary contexts, limits and flags.

pub(crate) mod primary;
pub(crate) mod stack;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use outboard_abi::{CUcontext, CUresult};
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, Faults, ObjectId, Result, ServerId};
use crate::fault::Fault;
use crate::handles::{Kind, not_found};
use crate::parts::green::Green;
use crate::process::{Front, Process};
use crate::state::ready;
use crate::storage::Storage;

pub(crate) use crate::parts::context::{Context, Here};
pub(crate) use primary::{current_or_first, init, primary};
pub(crate) use stack::{pop, top};

/// `CU_CTX_SCHED_*` and the others that `cuCtxCreate` takes.
pub(crate) const FLAGS: u32 = 0xff;

pub(crate) fn new(
    front: &'static Front,
    device: usize,
    primary: bool,
    flags: u32,
    users: u32,
) -> Option<&'static Context> {
    insert(front, device, primary, None, flags, users)
}

/// The context that represents a green context of the device.
pub(crate) fn of_green(
    front: &'static Front,
    device: usize,
    green: Green,
) -> Option<&'static Context> {
    insert(front, device, false, Some(green), 0, 1)
}

/// Ends the handle of a green context's context.
pub(crate) fn drop_green(front: &'static Front, context: &'static Context) {
    context.storage.end(context.handle);
    front.contexts.table.remove(context.handle);
    context.destroyed.store(true, Ordering::Release);
    if top().is_some_and(|top| std::ptr::eq(top, context)) {
        pop();
    }
}

fn insert(
    front: &'static Front,
    device: usize,
    primary: bool,
    green: Option<Green>,
    flags: u32,
    users: u32,
) -> Option<&'static Context> {
    let make = |handle| Context {
        state: &front.state,
        handle,
        device,
        primary,
        green,
        storage: Storage::default(),
        id: AtomicU32::new(0),
        fault: Fault::default(),
        legacy: AtomicU64::new(0),
        flags: AtomicU32::new(flags),
        cache_config: AtomicU32::new(0),
        limits: crate::parts::context::limits::Limits::default(),
        owed: AtomicU32::new(0),
        destroyed: AtomicBool::new(false),
        users: Mutex::new(users),
    };
    // Every call names a context, so its users are not counted: a few hundred bytes stay behind
    // when one ends.
    front
        .contexts
        .table
        .insert(|handle| &*Box::leak(Box::new(make(handle))))
        .map(|context| *context)
}

impl Context {
    /// Adds a user of a primary context, which the first one starts.
    pub(crate) fn retain<B: Backend>(&self, process: &'static Process<B>) -> Result<()> {
        let mut users = self.users.lock();
        // A reset leaves it with users and not active.
        if !self.is_active() {
            self.start(process)?;
        }
        *users += 1;
        Ok(())
    }

    pub(crate) fn start<B: Backend>(&self, process: &'static Process<B>) -> Result<()> {
        let device = ready(process)?.devices[self.device].id;
        let id = process.contexts.name(device.server())?;
        process.backend.context_open(
            id,
            device,
            self.flags.load(Ordering::Relaxed),
            self.primary,
        )?;
        self.fault.clear();
        self.limits.forget();
        self.owed.store(0, Ordering::Relaxed);
        self.legacy.store(process.streams.number_of_legacy(), Ordering::Relaxed);
        self.id.store(id.0, Ordering::Release);
        Ok(())
    }
}

impl Faults for Front {
    fn fault(&self, ctx: ContextId, error: CUresult) {
        if let Some(context) = by_id(self, ctx) {
            context.fault.set(error);
        }
    }

    fn communicator_failed(&self, comm: ObjectId, result: u32, sentence: &str) {
        if let Some(comm) = self.communicators.named(comm) {
            comm.set(result, sentence);
        }
    }
}

impl Front {
    /// Keeps a sticky error that a call in a context came back with.
    pub(crate) fn note<T>(&self, ctx: ContextId, outcome: Result<T>) -> Result<T> {
        if outcome.is_err()
            && let Some(context) = by_id(self, ctx)
        {
            return context.fault.note(outcome);
        }
        outcome
    }
}

/// The calling thread's current context, alive and without a fault.
pub(crate) fn current(front: &'static Front) -> Result<Here> {
    ready(front)?;
    top().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.live()
}

/// The context of a handle; null is the current one.
pub(crate) fn named(front: &'static Front, context: CUcontext) -> Result<&'static Context> {
    ready(front)?;
    if context.is_null() {
        return top().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    front.contexts.table.look(context as u64).map(|context| **context).ok_or_else(
        || match not_found(Kind::Context, context as u64) {
            CUresult::CUDA_ERROR_INVALID_HANDLE => CUresult::CUDA_ERROR_INVALID_CONTEXT,
            destroyed => destroyed,
        },
    )
}

/// The context with the backend's name `id`, if it is open.
pub(crate) fn by_id(front: &Front, id: ContextId) -> Option<&'static Context> {
    front
        .contexts
        .table
        .find(|context| context.id.load(Ordering::Acquire) == id.0)
        .map(|context| *context)
}

/// A context in which something is said to a server: this one, or if that is another server's, one
/// of that server that is open.
pub(crate) fn on(front: &'static Front, here: Here, server: ServerId) -> Result<Here> {
    if here.id.server() == server {
        return Ok(here);
    }
    let other = any(front, server).and_then(|id| by_id(front, id));
    other.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.live()
}

/// Some context of a server that is open: for what belongs to none and needs one to be said in.
pub(crate) fn any(front: &'static Front, server: ServerId) -> Option<ContextId> {
    let open = |context: &'static Context| match ContextId(context.id.load(Ordering::Acquire)) {
        ContextId(0) => None,
        id => (id.server() == server).then_some(id),
    };
    top()
        .and_then(open)
        .or_else(|| front.contexts.table.find(|c| open(c).is_some()).and_then(|c| open(*c)))
}
