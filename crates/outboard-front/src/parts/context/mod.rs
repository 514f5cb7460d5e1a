//! Contexts: the stack of current ones, primary contexts, limits and flags.

pub(crate) mod limits;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use outboard_abi::CUresult;
use outboard_wire::platform::Device;
use parking_lot::Mutex;

use crate::backend::{ContextId, Result, ServerId};
use crate::device::Limits;
use crate::fault::Fault;
use crate::handles::{Kind, Table};
use crate::parts::green::Green;
use crate::parts::state::DriverState;
use crate::storage::Storage;

/// A context, alive or not: a thread may hold a destroyed one on its stack. It is never freed.
pub(crate) struct Context {
    /// Of the process that it is of.
    pub(crate) state: &'static DriverState,
    pub(crate) handle: u64,
    /// Index among the visible devices.
    pub(crate) device: usize,
    pub(crate) storage: Storage,
    pub(crate) primary: bool,
    /// For a context that represents a green context: its work is the primary context's, in a share
    /// of the device.
    pub(crate) green: Option<Green>,
    /// The backend's name for it; 0 while a primary context is not active, and once a context is
    /// destroyed.
    pub(crate) id: AtomicU32,
    pub(crate) fault: Fault,
    /// The number of its legacy default stream, since it last began.
    pub(crate) legacy: AtomicU64,
    pub(crate) flags: AtomicU32,
    pub(crate) cache_config: AtomicU32,
    pub(crate) limits: limits::Limits,
    /// An error that a call has returned, and that the next wait returns as well; 0 for none.
    pub(crate) owed: AtomicU32,
    pub(crate) destroyed: AtomicBool,
    /// Retain count of a primary context, usage count of another one. Held while the backend opens
    /// and closes it.
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
    last: AtomicU32,
    /// The primary contexts, by the visible devices' indices.
    pub(crate) primary: OnceLock<Vec<&'static Context>>,
}

impl Contexts {
    pub(crate) const fn new() -> Contexts {
        Contexts {
            table: Table::new(Kind::Context),
            last: AtomicU32::new(0),
            primary: OnceLock::new(),
        }
    }

    /// A name for another context of a server.
    pub(crate) fn name(&self, server: ServerId) -> Result<ContextId> {
        let named = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            ContextId::new(server, last + 1).map(|_| last + 1)
        });
        let last = named.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        ContextId::new(server, last + 1).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

impl Context {
    /// The context to work in: alive, active, without a fault.
    #[inline]
    pub(crate) fn live(&'static self) -> Result<Here> {
        crate::host_call::outside()?;
        let here = self.open()?;
        here.context.fault.check()?;
        Ok(here)
    }

    /// Whether the backend has it.
    pub(crate) fn is_active(&self) -> bool {
        self.id.load(Ordering::Acquire) != 0
    }

    /// As [`Context::live`], faulted or not.
    #[inline]
    pub(crate) fn open(&'static self) -> Result<Here> {
        if let Some(green) = &self.green {
            return self.open_green(green);
        }
        match self.id.load(Ordering::Acquire) {
            0 => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            id => Ok(Here { context: self, id: ContextId(id), green: None }),
        }
    }

    #[cold]
    fn open_green(&'static self, green: &Green) -> Result<Here> {
        let here = green.primary.open()?;
        if here.id != green.ctx || green.closed.load(Ordering::Acquire) {
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        Ok(Here { green: Some(self), ..here })
    }

    /// There is a kernel whose threads need so many bytes of local memory each.
    pub(crate) fn needs_local(&self, bytes: u64) {
        self.limits.needs_local(bytes);
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

    /// The number by which programs tell contexts apart: another one each time that a primary
    /// context begins.
    pub(crate) fn number(&self) -> u64 {
        self.green().map_or(u64::from(self.id.number()), |green| green.handle)
    }

    /// The device as its snapshot describes it.
    pub(crate) fn device(&self) -> Result<&'static Device> {
        Ok(&self.context.state.ready()?.devices[self.context.device])
    }

    /// The device's limits for launches.
    pub(crate) fn limits(&self) -> Result<&'static Limits> {
        Ok(&self.context.state.ready()?.limits[self.context.device])
    }

    /// Keeps a sticky error that a call came back with.
    pub(crate) fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        self.context.fault.note(outcome)
    }
}

impl Here {
    /// Has the next wait in the context return an error, too: the caller may ignore the error and
    /// continue with wrong results.
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
