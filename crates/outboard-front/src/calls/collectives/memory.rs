//! Memory for collectives.

use core::ffi::{c_int, c_void};

use outboard_wire::collectives::CommCall;

use super::{Comm, enter, put};
use crate::backend::{Backend, DevicePtr};
use crate::calls::memory::{cuMemAlloc_v2, cuMemFree_v2};
use crate::collectives::group::{After, Entry, Out};
use crate::collectives::{self, Failure, alone, check, group};
use crate::process::Process;

pub unsafe fn ncclMemAlloc<B: Backend>(
    process: &'static Process<B>,
    out: *mut *mut c_void,
    bytes: usize,
) -> u32 {
    enter(process, "ncclMemAlloc", || {
        let mut address = 0;
        // SAFETY: the out parameter is ours.
        unsafe { cuMemAlloc_v2(process, &raw mut address, bytes) }?;
        // SAFETY: the program's out parameter.
        unsafe { put(out, address as *mut c_void) }
    })
}

pub unsafe fn ncclMemFree<B: Backend>(process: &'static Process<B>, memory: *mut c_void) -> u32 {
    enter(process, "ncclMemFree", || {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: the program's memory, as cuMemFree takes it.
        Ok(unsafe { cuMemFree_v2(process, memory as u64) }?)
    })
}

pub unsafe fn ncclCommRegister<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    buffer: *mut c_void,
    bytes: usize,
    handle: *mut *mut c_void,
) -> u32 {
    enter(process, "ncclCommRegister", || {
        let comm = collectives::ready(process, comm as u64)?;
        let address = DevicePtr(buffer as u64);
        if bytes == 0 || handle.is_null() {
            return Err(Failure::argument(
                "the buffer is empty, or there is no place for a handle",
            ));
        }
        check::device_memory(process, &comm, address, bytes as u64)?;
        let call = CommCall::Register { comm: comm.id(), address, bytes: bytes as u64 };
        let made = alone(process, &comm, call)?;
        comm.shapes.buffers_changed();
        // SAFETY: the program's out parameter.
        unsafe { put(handle, made as *mut c_void) }
    })
}

pub unsafe fn ncclCommDeregister<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    handle: *mut c_void,
) -> u32 {
    enter(process, "ncclCommDeregister", || {
        let comm = collectives::ready(process, comm as u64)?;
        let call = CommCall::Deregister { comm: comm.id(), handle: handle as u64 };
        alone(process, &comm, call)?;
        comm.shapes.buffers_changed();
        Ok(())
    })
}

pub unsafe fn ncclCommWindowRegister<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    buffer: *mut c_void,
    bytes: usize,
    window: *mut *mut c_void,
    flags: c_int,
) -> u32 {
    enter(process, "ncclCommWindowRegister", || {
        let comm = collectives::ready(process, comm as u64)?;
        let address = DevicePtr(buffer as u64);
        if bytes == 0 || window.is_null() {
            return Err(Failure::argument(
                "the buffer is empty, or there is no place for a window",
            ));
        }
        check::device_memory(process, &comm, address, bytes as u64)?;
        let bytes = bytes as u64;
        let call = CommCall::RegisterWindow { comm: comm.id(), address, bytes, flags };
        // SAFETY: the program's out parameter, not null.
        let after = After::Gives(unsafe { Out::new(window) });
        group::add(process, Entry { comm, call, after })
    })
}

pub unsafe fn ncclCommWindowDeregister<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    window: *mut c_void,
) -> u32 {
    enter(process, "ncclCommWindowDeregister", || {
        let comm = collectives::ready(process, comm as u64)?;
        let call = CommCall::DeregisterWindow { comm: comm.id(), window: window as u64 };
        alone(process, &comm, call)?;
        comm.shapes.buffers_changed();
        Ok(())
    })
}
