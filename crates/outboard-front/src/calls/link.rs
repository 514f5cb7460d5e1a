//! The linker.

use core::ffi::{c_char, c_uint, c_void};

use outboard_abi::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use parking_lot::Mutex;

use crate::backend::{Backend, JitLog, LinkInput, Result};
use crate::border::{put, put_if, require, slice, text};
use crate::context;
use crate::dropped;
use crate::jit;
use crate::link::{Link, resolve};
use crate::logs;
use crate::process::Process;

pub unsafe fn cuLinkCreate_v2<B: Backend>(
    process: &'static Process<B>,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    out: *mut CUlinkState,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null())?;
    // SAFETY: the program's options.
    let jit = unsafe { jit::Options::read(count, options, values) }?;
    let make = |handle| Link {
        handle,
        context: here.context,
        ctx: here.id,
        places: jit.places(),
        output: Mutex::default(),
    };
    let link = process.links.table.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = here.note(process.backend.link_create(here.id, link.id(), &jit.given)) {
        process.links.table.remove(link.handle);
        return Err(error);
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, link.handle as CUlinkState) }
}

pub unsafe fn cuLinkCreate<B: Backend>(
    process: &'static Process<B>,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    out: *mut CUlinkState,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuLinkCreate_v2(process, count, options, values, out) }
}

pub unsafe fn cuLinkAddData_v2<B: Backend>(
    process: &'static Process<B>,
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    let (here, link) = resolve(process, state)?;
    require(!data.is_null() && size != 0)?;
    // SAFETY: the program's data, string and options.
    let (data, name, jit) = unsafe {
        let name = if name.is_null() { "<unnamed>" } else { text(name)? };
        (
            slice(data.cast::<u8>().cast_const(), size)?,
            name,
            jit::Options::read(count, options, values)?,
        )
    };
    link.add(process, &here, LinkInput { kind: kind.0, data, name, options: &jit.given })
}

pub unsafe fn cuLinkAddData<B: Backend>(
    process: &'static Process<B>,
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuLinkAddData_v2(process, state, kind, data, size, name, count, options, values) }
}

pub unsafe fn cuLinkAddFile_v2<B: Backend>(
    process: &'static Process<B>,
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    let (here, link) = resolve(process, state)?;
    // SAFETY: the program's string and options.
    let (path, jit) = unsafe { (text(path)?, jit::Options::read(count, options, values)?) };
    // The file is the client's: a server never opens a file by a client's name for it.
    let data = std::fs::read(path).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    if data.is_empty() {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    link.add(
        process,
        &here,
        LinkInput { kind: kind.0, data: &data, name: path, options: &jit.given },
    )
}

pub unsafe fn cuLinkAddFile<B: Backend>(
    process: &'static Process<B>,
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuLinkAddFile_v2(process, state, kind, path, count, options, values) }
}

pub unsafe fn cuLinkComplete<B: Backend>(
    process: &'static Process<B>,
    state: CUlinkState,
    cubin: *mut *mut c_void,
    size: *mut usize,
) -> Result<()> {
    let (here, link) = resolve(process, state)?;
    require(!cubin.is_null())?;
    let mut log = JitLog::default();
    // Held over the link: a second call in another thread returns the first one's image.
    let mut output = link.output.lock();
    if output.is_none() {
        let linked = here.note(process.backend.link_complete(here.id, link.id(), &mut log));
        // SAFETY: the link lives, and the program keeps the places as long.
        unsafe { link.places.write(&log) };
        if let Err(error) = linked {
            dropped::note(process, &here, error, &log.error, &link.caller());
            if !log.error.is_empty() {
                logs::because(log.error);
            }
        }
        *output = Some(linked?.into());
    }
    let image = output.as_deref().unwrap_or_default();
    // SAFETY: the program's out parameters; the size may be left out.
    unsafe {
        put_if(size, image.len());
        put(cubin, image.as_ptr().cast_mut().cast())
    }
}

pub unsafe fn cuLinkDestroy<B: Backend>(
    process: &'static Process<B>,
    state: CUlinkState,
) -> Result<()> {
    crate::state::ready(process)?;
    let link =
        process.links.table.remove(state as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    // With its context the device's side of it has ended; what is left was this side's.
    match link.context.live() {
        Ok(here) if here.id == link.ctx => {
            here.note(process.backend.link_destroy(link.ctx, link.id()))
        }
        _ => Ok(()),
    }
}
