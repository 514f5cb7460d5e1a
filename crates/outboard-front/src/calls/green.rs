//! Green contexts.

use core::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUevent, CUgreenCtx,
    CUresult, CUstream,
};
use parking_lot::Mutex;

use crate::backend::{Backend, ObjectId, Result, Share, SplitRequest};
use crate::border::{put, put_if, require};
use crate::context::{self, Context, Here};
use crate::green::{Green, named};
use crate::process::Process;
use crate::several::together;
use crate::{event, state, stream};

/// `CU_GREEN_CTX_DEFAULT_STREAM`.
const DEFAULT_STREAM: u32 = 1;
/// `CU_DEV_RESOURCE_TYPE_SM`, the only one.
const MULTIPROCESSORS: u32 = 1;
/// No device has more multiprocessors, nor groups of them.
const MOST_GROUPS: u32 = 4096;

const _: () = assert!(size_of::<CUdevResource>() == size_of::<Share>());

fn id_of(here: &Here) -> Option<ObjectId> {
    here.green().map(Green::id)
}

/// # Safety
/// `resource` is null or valid for a read.
unsafe fn read(resource: *const CUdevResource) -> Result<Share> {
    require(!resource.is_null())?;
    // SAFETY: not null, and the caller says it is then valid; any bytes will do.
    Ok(unsafe { resource.cast::<Share>().read() })
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn write(out: *mut CUdevResource, resource: Share) -> Result<()> {
    // SAFETY: by the contract above; the sizes agree.
    unsafe { put(out.cast(), resource) }
}

fn check_kind(kind: CUdevResourceType) -> Result<u32> {
    if kind.0 == MULTIPROCESSORS {
        Ok(kind.0)
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE)
    }
}

pub unsafe fn cuDeviceGetDevResource<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Result<()> {
    let (_, device) = state::device(process, dev)?;
    require(!out.is_null())?;
    let found = process.backend.device_resource(device.id, check_kind(kind)?)?;
    // SAFETY: the program's out parameter.
    unsafe { write(out, found) }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn resource_of<B: Backend>(
    process: &'static Process<B>,
    context: &'static Context,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Result<()> {
    let here = context.live()?;
    require(!out.is_null())?;
    let found =
        here.note(process.backend.context_resource(here.id, id_of(&here), check_kind(kind)?))?;
    // SAFETY: by the contract above.
    unsafe { write(out, found) }
}

pub unsafe fn cuCtxGetDevResource<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { resource_of(process, context::named(process, ctx)?, out, kind) }
}

pub unsafe fn cuGreenCtxGetDevResource<B: Backend>(
    process: &'static Process<B>,
    green: CUgreenCtx,
    out: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { resource_of(process, named(process, green)?, out, kind) }
}

pub unsafe fn cuDevSmResourceSplitByCount<B: Backend>(
    process: &'static Process<B>,
    result: *mut CUdevResource,
    groups: *mut c_uint,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    flags: c_uint,
    least: c_uint,
) -> Result<()> {
    state::ready(process)?;
    require(!groups.is_null())?;
    // SAFETY: the program's structures.
    let (input, room) = unsafe { (read(input)?, *groups) };
    require(input[..4] == MULTIPROCESSORS.to_le_bytes())
        .map_err(|_| CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE)?;
    let request = SplitRequest {
        input: &input,
        groups: (!result.is_null()).then_some(room.min(MOST_GROUPS)),
        remaining: !remaining.is_null(),
        flags,
        least,
    };
    let split = process.backend.resource_split(request)?;
    for (index, group) in split.groups.iter().take(room as usize).enumerate() {
        // SAFETY: the program gives as many elements as it says.
        unsafe { write(result.add(index), *group) }?;
    }
    // SAFETY: the program's out parameters.
    unsafe {
        if let Some(left) = split.remaining {
            put_if(remaining.cast(), left);
        }
        put(groups, split.count)
    }
}

pub unsafe fn cuDevResourceGenerateDesc<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdevResourceDesc,
    resources: *mut CUdevResource,
    count: c_uint,
) -> Result<()> {
    state::ready(process)?;
    require(!out.is_null() && !resources.is_null() && (1..=MOST_GROUPS).contains(&count))?;
    // SAFETY: the program gives `count` elements.
    let given = (0..count as usize)
        .map(|index| unsafe { read(resources.add(index)) })
        .collect::<Result<Vec<_>>>()?;
    let handle = process.greens.descriptors.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = process.backend.resource_describe(ObjectId(handle), &given) {
        process.greens.descriptors.release(handle);
        return Err(error);
    }
    process.greens.descriptors.fill(handle, Arc::new(()));
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUdevResourceDesc) }
}

pub unsafe fn cuGreenCtxCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgreenCtx,
    desc: CUdevResourceDesc,
    dev: CUdevice,
    flags: c_uint,
) -> Result<()> {
    let (device, _) = state::device(process, dev)?;
    require(!out.is_null() && flags == DEFAULT_STREAM)?;
    require(process.greens.descriptors.get(desc as u64).is_some())?;
    let primary = context::primary(process, device)?;
    primary.retain(process)?;
    let open = || {
        let here = primary.live()?;
        let handle = process.greens.table.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let green = Green {
            handle,
            ctx: here.id,
            primary,
            closed: AtomicBool::new(false),
            default_stream: Mutex::new(None),
        };
        let opened = here.note(process.backend.green_open(
            here.id,
            green.id(),
            ObjectId(desc as u64),
            flags,
        ));
        let context = opened.and_then(|()| {
            context::of_green(process, device, green).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        });
        match context {
            Ok(context) => {
                process.greens.table.fill(handle, Arc::new(context));
                Ok(handle)
            }
            Err(error) => {
                process.greens.table.release(handle);
                Err(error)
            }
        }
    };
    match open() {
        // SAFETY: the program's out parameter.
        Ok(handle) => unsafe { put(out, handle as CUgreenCtx) },
        Err(error) => {
            let _ = primary.release(process);
            Err(error)
        }
    }
}

pub unsafe fn cuGreenCtxDestroy<B: Backend>(
    process: &'static Process<B>,
    handle: CUgreenCtx,
) -> Result<()> {
    let context = named(process, handle)?;
    process.greens.table.remove(handle as u64).ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    let primary = context::primary(process, context.device)?;
    let closed = match (&context.green, primary.live()) {
        (Some(green), Ok(here))
            if here.id == green.ctx && !green.closed.swap(true, Ordering::AcqRel) =>
        {
            stream::forget_green(process, green.handle);
            here.note(process.backend.green_close(here.id, green.id()))
        }
        // It ended with its primary context.
        _ => Ok(()),
    };
    context::drop_green(process, context);
    closed.and(primary.release(process))
}

pub unsafe fn cuCtxFromGreenCtx<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
    green: CUgreenCtx,
) -> Result<()> {
    let context = named(process, green)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub unsafe fn cuGreenCtxGetId<B: Backend>(
    process: &'static Process<B>,
    green: CUgreenCtx,
    out: *mut c_ulonglong,
) -> Result<()> {
    let here =
        if green.is_null() { context::current(process)? } else { named(process, green)?.live()? };
    let id = here.green().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.handle;
    // SAFETY: the program's out parameter.
    unsafe { put(out, id) }
}

pub unsafe fn cuGreenCtxStreamCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUstream,
    green: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> Result<()> {
    let here = named(process, green)?.live()?;
    // Such streams never wait for a default one.
    require(!out.is_null() && flags == stream::NON_BLOCKING)?;
    let handle = stream::create(process, &here, flags, priority)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUstream) }
}

fn record<B: Backend>(process: &'static Process<B>, here: &Here, event: CUevent) -> Result<()> {
    let event = event::to_record(process, event)?;
    if event.ctx != here.id {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    here.note(process.backend.context_record(here.id, id_of(here), event.id()))
}

fn wait<B: Backend>(process: &'static Process<B>, here: &Here, event: CUevent) -> Result<()> {
    let event = event::resolve(process, event)?;
    together(here.id, event.ctx)?;
    here.note(process.backend.context_wait(here.id, id_of(here), event.id()))
}

pub unsafe fn cuGreenCtxRecordEvent<B: Backend>(
    process: &'static Process<B>,
    green: CUgreenCtx,
    event: CUevent,
) -> Result<()> {
    record(process, &named(process, green)?.live()?, event)
}

pub unsafe fn cuGreenCtxWaitEvent<B: Backend>(
    process: &'static Process<B>,
    green: CUgreenCtx,
    event: CUevent,
) -> Result<()> {
    wait(process, &named(process, green)?.live()?, event)
}

pub unsafe fn cuCtxRecordEvent<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
    event: CUevent,
) -> Result<()> {
    record(process, &context::named(process, ctx)?.live()?, event)
}

pub unsafe fn cuCtxWaitEvent<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
    event: CUevent,
) -> Result<()> {
    wait(process, &context::named(process, ctx)?.live()?, event)
}

pub unsafe fn cuStreamGetGreenCtx<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut CUgreenCtx,
) -> Result<()> {
    let context = stream::context_of(process, stream)?;
    let handle = context.green.as_ref().map_or(0, |green| green.handle);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUgreenCtx) }
}
