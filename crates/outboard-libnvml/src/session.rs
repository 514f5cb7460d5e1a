//! NVML's state in this process: how often it was initialised, and the connections.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outboard_abi::nvml::nvmlReturn_t;

use crate::border::Result;
use crate::machine::Machine;
use crate::source;

/// `nvmlInit`s less `nvmlShutdown`s.
static INITIALISED: AtomicU32 = AtomicU32::new(0);

/// The connections of one process. A forked child is another process: the connections are its
/// parent's, and a lock may be held for ever, so it gets a state of its own, and the old one is
/// left alone.
struct Process {
    id: u32,
    machine: Mutex<Option<Arc<Machine>>>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());

fn process() -> &'static Process {
    let id = std::process::id();
    loop {
        let known = PROCESS.load(Ordering::Acquire);
        // SAFETY: null, or leaked below and so valid for ever.
        if let Some(process) = unsafe { known.as_ref() }
            && process.id == id
        {
            return process;
        }
        let new = Box::into_raw(Box::new(Process { id, machine: Mutex::new(None) }));
        if PROCESS.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// Connects, if this is the first.
pub(crate) fn initialise() -> Result<()> {
    connected()?;
    INITIALISED.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// Disconnects, if this is the last.
pub(crate) fn shut_down() -> Result<()> {
    let less = |count: u32| count.checked_sub(1);
    match INITIALISED.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
        Ok(1) => {
            let machine = process().machine.lock().unwrap_or_else(PoisonError::into_inner).take();
            // A call of another thread may still hold it.
            drop(machine);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(_) => Err(nvmlReturn_t::NVML_ERROR_UNINITIALIZED),
    }
}

/// The devices.
pub(crate) fn machine() -> Result<Arc<Machine>> {
    require_initialised()?;
    connected()
}

pub(crate) fn require_initialised() -> Result<()> {
    match INITIALISED.load(Ordering::Acquire) {
        0 => Err(nvmlReturn_t::NVML_ERROR_UNINITIALIZED),
        _ => Ok(()),
    }
}

fn connected() -> Result<Arc<Machine>> {
    let mut machine = process().machine.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(machine) = &*machine {
        return Ok(Arc::clone(machine));
    }
    let opened = Arc::new(Machine::open().map_err(source::failed)?);
    *machine = Some(Arc::clone(&opened));
    Ok(opened)
}
