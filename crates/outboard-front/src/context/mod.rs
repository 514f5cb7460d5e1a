//! Contexts: the stack of current ones, primary contexts, limits and flags.

pub(crate) mod limits;
pub(crate) mod primary;
pub(crate) mod stack;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::{CUcontext, CUresult};
use outboard_wire::platform::Device;
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, Faults, Result};
use crate::device::Limits;
use crate::fault::Fault;
use crate::green::Green;
use crate::handles::{Kind, Table, not_found};
use crate::process::{Front, Process};
use crate::state::{State, ready};
use crate::storage::Storage;

pub(crate) use primary::{current_or_first, init, primary};
pub(crate) use stack::{pop, top};

/// A context, alive or not: a thread may hold a destroyed one on its stack. It is never freed.
pub(crate) struct Context {
    /// Of the process that it is of.
    pub(crate) state: &'static State,
    pub(crate) handle: u64,
    /// Index among the visible devices.
    pub(crate) device: usize,
    pub(crate) storage: Storage,
    pub(crate) primary: bool,
    /// For a context that stands for a green one: its work is the primary context's, in a share of the device.
    pub(crate) green: Option<Green>,
    /// The backend's name for it; 0 while a primary context is not active, and once a context is destroyed.
    pub(crate) id: AtomicU32,
    pub(crate) fault: Fault,
    pub(crate) flags: AtomicU32,
    pub(crate) cache_config: AtomicU32,
    pub(crate) limits: limits::Limits,
    /// An error that a call has returned, and that the next wait returns as well; 0 for none.
    owed: AtomicU32,
    pub(crate) destroyed: AtomicBool,
    /// Retain count of a primary context, usage count of another one. Held while the backend opens and closes it.
    pub(crate) users: Mutex<u32>,
}

/// A context that can be worked in, and the backend's name for it.
#[derive(Clone)]
pub(crate) struct Here {
    pub(crate) context: &'static Context,
    pub(crate) id: ContextId,
    /// The green context through which it was named.
    green: Option<&'static Context>,
}

/// The contexts of a process.
pub(crate) struct Contexts {
    pub(crate) table: Table<&'static Context>,
    next_id: AtomicU32,
    /// The primary contexts, by the visible devices' indices.
    primary: OnceLock<Vec<&'static Context>>,
}

impl Contexts {
    pub(crate) const fn new() -> Contexts {
        Contexts { table: Table::new(Kind::Context), next_id: AtomicU32::new(1), primary: OnceLock::new() }
    }
}

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

/// The context that stands for a green one of the device.
pub(crate) fn of_green(front: &'static Front, device: usize, green: Green) -> Option<&'static Context> {
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
        flags: AtomicU32::new(flags),
        cache_config: AtomicU32::new(0),
        limits: limits::Limits::default(),
        owed: AtomicU32::new(0),
        destroyed: AtomicBool::new(false),
        users: Mutex::new(users),
    };
    // Every call names a context, so nobody counts who does: a few hundred bytes stay behind when one ends.
    front.contexts.table.insert(|handle| &*Box::leak(Box::new(make(handle)))).map(|context| *context)
}

impl Context {
    /// The context to work in: alive, active, without a fault.
    pub(crate) fn live(&'static self) -> Result<Here> {
        crate::host_call::outside()?;
        let here = self.open()?;
        here.context.fault.check()?;
        Ok(here)
    }

    /// As [`Context::live`], faulted or not.
    pub(crate) fn open(&'static self) -> Result<Here> {
        if let Some(green) = &self.green {
            let here = green.primary.open()?;
            if here.id != green.ctx || green.closed.load(Ordering::Acquire) {
                return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
            }
            return Ok(Here { green: Some(self), ..here });
        }
        match self.id.load(Ordering::Acquire) {
            0 => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            id => Ok(Here { context: self, id: ContextId(id), green: None }),
        }
    }

    /// There is a kernel whose threads need so many bytes of local memory each.
    pub(crate) fn needs_local(&self, bytes: u64) {
        self.limits.needs_local(bytes);
    }

    /// Adds a user of a primary context, which the first one starts.
    pub(crate) fn retain<B: Backend>(&self, process: &'static Process<B>) -> Result<()> {
        let mut users = self.users.lock();
        if *users == 0 && self.id.load(Ordering::Acquire) == 0 {
            self.start(process)?;
        }
        *users += 1;
        Ok(())
    }

    pub(crate) fn start<B: Backend>(&self, process: &'static Process<B>) -> Result<()> {
        let id = process.contexts.next_id.fetch_add(1, Ordering::Relaxed);
        let device = ready(process)?.devices[self.device].ordinal;
        process.backend.context_open(ContextId(id), device, self.flags.load(Ordering::Relaxed), self.primary)?;
        self.fault.clear();
        self.limits.forget();
        self.owed.store(0, Ordering::Relaxed);
        self.id.store(id, Ordering::Release);
        Ok(())
    }
}

impl Faults for Front {
    fn fault(&self, ctx: ContextId, error: CUresult) {
        if let Some(context) = by_id(self, ctx) {
            context.fault.set(error);
        }
    }
}

impl Here {
    /// The context as the program named it: the green one, if it did by that.
    pub(crate) fn named(&self) -> &'static Context {
        self.green.unwrap_or(self.context)
    }

    /// The green context whose share of the device is meant.
    pub(crate) fn green(&self) -> Option<&Green> {
        self.green.as_ref()?.green.as_ref()
    }

    /// The device as its snapshot describes it.
    pub(crate) fn device(&self) -> Result<&'static Device> {
        Ok(&self.context.state.ready()?.devices[self.context.device])
    }

    /// What the device says of launches.
    pub(crate) fn limits(&self) -> Result<&'static Limits> {
        Ok(&self.context.state.ready()?.limits[self.context.device])
    }

    /// Keeps a sticky error that a call came back with.
    pub(crate) fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome
            && crate::fault::is_sticky(*error)
        {
            self.context.fault.set(*error);
        }
        outcome
    }
}

impl Here {
    /// Has the next wait in the context return an error, too: whoever made the call at hand may not look, and go on with wrong results.
    pub(crate) fn owe(&self, error: CUresult) {
        self.context.owed.store(error.0, Ordering::Relaxed);
    }

    /// To be called by what waits for the device.
    pub(crate) fn pay(&self) -> Result<()> {
        if self.context.owed.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        match self.context.owed.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(CUresult(error)),
        }
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
    front.contexts.table.look(context as u64).map(|context| **context).ok_or_else(|| {
        match not_found(Kind::Context, context as u64) {
            CUresult::CUDA_ERROR_INVALID_HANDLE => CUresult::CUDA_ERROR_INVALID_CONTEXT,
            destroyed => destroyed,
        }
    })
}

/// The context with the backend's name `id`, if it is open.
pub(crate) fn by_id(front: &Front, id: ContextId) -> Option<&'static Context> {
    front.contexts.table.find(|context| context.id.load(Ordering::Acquire) == id.0).map(|context| *context)
}

/// Some context that is open: for what belongs to none and needs one to be said in.
pub(crate) fn any(front: &'static Front) -> Option<ContextId> {
    let open = |context: &'static Context| match context.id.load(Ordering::Acquire) {
        0 => None,
        id => Some(ContextId(id)),
    };
    top()
        .and_then(open)
        .or_else(|| front.contexts.table.find(|c| c.id.load(Ordering::Acquire) != 0).and_then(|c| open(*c)))
}
