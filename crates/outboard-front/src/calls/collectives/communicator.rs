//! Communicators come and go.

use core::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_wire::ObjectId;
use outboard_wire::collectives::{
    CommCall, CommConfig, ID_BYTES, UniqueId, differing_releases, mark,
};

use super::information::current_device;
use super::{Comm, enter, put};
use crate::backend::Backend;
use crate::collectives::group::{After, Entry, Out};
use crate::collectives::{self, Failure, Outcome, alone, config, group, result};
use crate::context::{self, Here};
use crate::parts::collectives::Comm as Object;
use crate::process::Process;
use crate::state;

/// As `ncclUniqueId`: NCCL takes it by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id([u8; ID_BYTES]);

/// The most ranks of a communicator in one process: more are a mistake.
const MOST_DEVICES: usize = 1024;

fn unique_id<B: Backend>(process: &'static Process<B>) -> Outcome<UniqueId> {
    let home = current_device(process)?;
    let release = collectives::release(process, home)?;
    let asked = crate::profile::waited(|| process.backend.collectives_id(home));
    let (status, failure, id) = asked?;
    if status != result::SUCCESS {
        return Err(Failure::new(status, failure));
    }
    let mut id: UniqueId = id
        .try_into()
        .map_err(|_| Failure::new(result::INTERNAL_ERROR, "the server gave no id of 128 bytes"))?;
    mark(&mut id, release);
    Ok(id)
}

pub unsafe fn ncclGetUniqueId<B: Backend>(process: &'static Process<B>, out: *mut Id) -> u32 {
    enter(process, "ncclGetUniqueId", || {
        let id = unique_id(process)?;
        // SAFETY: the program's out parameter.
        unsafe { put(out, Id(id)) }
    })
}

/// A communicator that the program has a handle of from now on.
///
/// # Safety
/// `out` is null or valid for writes until the call is done.
unsafe fn make<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    members: (i32, i32),
    blocking: bool,
    out: *mut Comm,
) -> Outcome<(Arc<Object>, After)> {
    if out.is_null() {
        return Err(Failure::argument("there is no place for the new communicator"));
    }
    let of = (here.id, here.context);
    let comm = process
        .communicators
        .table
        .insert(|handle| Object::new(handle, of, members, blocking))
        .ok_or_else(|| Failure::new(result::SYSTEM_ERROR, "there are too many communicators"))?;
    process.communicators.made.fetch_add(1, Ordering::Relaxed);
    // SAFETY: not null, and by the contract above.
    unsafe { out.write(comm.handle as Comm) };
    // SAFETY: as above.
    let after = After::Made(Arc::clone(&comm), unsafe { Out::new(out) });
    Ok((comm, after))
}

fn check_ranks(ranks: i32, rank: i32) -> Outcome<()> {
    if ranks < 1 {
        return Err(Failure::argument(format!("a communicator cannot have {ranks} ranks")));
    }
    if !(0..ranks).contains(&rank) {
        return Err(Failure::argument(format!("rank {rank} is none of {ranks}")));
    }
    Ok(())
}

/// Adds the call that makes a rank of a communicator.
///
/// # Safety
/// As of [`make`].
unsafe fn init<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    out: *mut Comm,
    (ranks, rank): (i32, i32),
    ids: Vec<UniqueId>,
    config: CommConfig,
) -> Outcome<()> {
    check_ranks(ranks, rank)?;
    // Other servers, to which the program's other ranks may belong, would wait for this one.
    let own = collectives::release(process, state::device_id(process, here.context.device)?)?;
    if let Some(sentence) = differing_releases(own, &ids) {
        return Err(Failure::usage(sentence));
    }
    let blocking = config::is_blocking(Some(&config), true);
    // SAFETY: by the contract above.
    let (comm, after) = unsafe { make(process, here, (rank, ranks), blocking, out) }?;
    let call = CommCall::Init { comm: comm.id(), ctx: here.id, ranks, rank, ids, config };
    group::add(process, Entry { comm, call, after })
}

/// The context that a new communicator is of.
fn current<B: Backend>(process: &'static Process<B>) -> Outcome<Here> {
    state::init(process)?;
    context::init(process);
    Ok(context::current_or_first(process)?)
}

pub unsafe fn ncclCommInitRank<B: Backend>(
    process: &'static Process<B>,
    out: *mut Comm,
    ranks: c_int,
    id: Id,
    rank: c_int,
) -> u32 {
    enter(process, "ncclCommInitRank", || {
        let here = current(process)?;
        let config = CommConfig::default();
        // SAFETY: the program's out parameter.
        unsafe { init(process, &here, out, (ranks, rank), vec![id.0], config) }
    })
}

pub unsafe fn ncclCommInitRankConfig<B: Backend>(
    process: &'static Process<B>,
    out: *mut Comm,
    ranks: c_int,
    id: Id,
    rank: c_int,
    config: *const c_void,
) -> u32 {
    enter(process, "ncclCommInitRankConfig", || {
        let here = current(process)?;
        // SAFETY: the program's configuration.
        let config = unsafe { config::read(config) }?.unwrap_or_default();
        // SAFETY: the program's out parameter.
        unsafe { init(process, &here, out, (ranks, rank), vec![id.0], config) }
    })
}

pub unsafe fn ncclCommInitRankScalable<B: Backend>(
    process: &'static Process<B>,
    out: *mut Comm,
    ranks: c_int,
    rank: c_int,
    count: c_int,
    ids: *const Id,
    config: *const c_void,
) -> u32 {
    enter(process, "ncclCommInitRankScalable", || {
        let here = current(process)?;
        if ids.is_null() || count < 1 || count > ranks {
            return Err(Failure::argument("the unique ids are missing, or more than ranks"));
        }
        // SAFETY: the program's array, of that many.
        let ids = unsafe { std::slice::from_raw_parts(ids, count as usize) };
        // SAFETY: the program's configuration.
        let config = unsafe { config::read(config) }?.unwrap_or_default();
        let ids = ids.iter().map(|id| id.0).collect();
        // SAFETY: the program's out parameter.
        unsafe { init(process, &here, out, (ranks, rank), ids, config) }
    })
}

pub unsafe fn ncclCommInitAll<B: Backend>(
    process: &'static Process<B>,
    out: *mut Comm,
    count: c_int,
    devices: *const c_int,
) -> u32 {
    enter(process, "ncclCommInitAll", || {
        current_device(process)?;
        let count = usize::try_from(count).ok().filter(|count| (1..=MOST_DEVICES).contains(count));
        let count = count.ok_or_else(|| Failure::argument("a number of devices is needed"))?;
        if out.is_null() {
            return Err(Failure::argument("there is no place for the communicators"));
        }
        let devices: Vec<c_int> = if devices.is_null() {
            (0..count as c_int).collect()
        } else {
            // SAFETY: the program's array, of that many.
            unsafe { std::slice::from_raw_parts(devices, count) }.to_vec()
        };
        let mut seen = std::collections::BTreeSet::new();
        if let Some(twice) = devices.iter().find(|device| !seen.insert(**device)) {
            return Err(Failure::usage(format!("device {twice} is in the list twice")));
        }
        let places = devices
            .iter()
            .map(|device| Ok(state::device(process, *device)?.0))
            .collect::<Outcome<Vec<usize>>>()?;
        let id = unique_id(process)?;
        group::start();
        for (rank, device) in places.into_iter().enumerate() {
            let add = || {
                let here = context::primary::active(process, device)?;
                let ranks = (count as i32, rank as i32);
                // SAFETY: the program's array has room for that many.
                unsafe {
                    init(process, &here, out.add(rank), ranks, vec![id], CommConfig::default())
                }
            };
            if let Err(failure) = add() {
                group::failed(&failure);
            }
        }
        group::end(process)
    })
}

pub unsafe fn ncclCommSplit<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    color: c_int,
    key: c_int,
    out: *mut Comm,
    config: *const c_void,
) -> u32 {
    enter(process, "ncclCommSplit", || {
        let parent = collectives::ready(process, comm as u64)?;
        // SAFETY: the program's configuration.
        let config = unsafe { config::read(config) }?;
        let blocking = config::is_blocking(config.as_ref(), parent.blocking);
        if color < NO_COLOR {
            return Err(Failure::argument(format!("{color} is no colour")));
        }
        let (made, after) = if color == NO_COLOR {
            // SAFETY: the program's out parameter.
            unsafe { put(out, core::ptr::null_mut()) }?;
            (ObjectId::NONE, After::Nothing)
        } else {
            let here = parent.context.live()?;
            // SAFETY: the program's out parameter.
            let made = unsafe { make(process, &here, parent.members(), blocking, out) }?;
            (made.0.id(), made.1)
        };
        let call = CommCall::Split { comm: parent.id(), made, color, key, config };
        group::add(process, Entry { comm: parent, call, after })
    })
}

/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOR: c_int = -1;

pub unsafe fn ncclCommShrink<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    excluded: *const c_int,
    count: c_int,
    out: *mut Comm,
    config: *const c_void,
    flags: c_int,
) -> u32 {
    enter(process, "ncclCommShrink", || {
        // With NCCL_SHRINK_ABORT, the communicator may have failed.
        let parent = collectives::find(process, comm as u64)?;
        let (own, ranks) = parent.members();
        let count = usize::try_from(count).ok().filter(|count| (1..ranks as usize).contains(count));
        let Some(count) = count.filter(|_| !excluded.is_null()) else {
            return Err(Failure::argument("the ranks to leave out are missing, or too many"));
        };
        // SAFETY: the program's array, of that many.
        let excluded = unsafe { std::slice::from_raw_parts(excluded, count) }.to_vec();
        if excluded.contains(&own) {
            return Err(Failure::argument("a rank that is left out does not take part"));
        }
        // SAFETY: the program's configuration.
        let config = unsafe { config::read(config) }?;
        let blocking = config::is_blocking(config.as_ref(), parent.blocking);
        let here = parent.context.live()?;
        // SAFETY: the program's out parameter.
        let (made, after) = unsafe { make(process, &here, (own, ranks), blocking, out) }?;
        let call = CommCall::Shrink { comm: parent.id(), made: made.id(), excluded, config, flags };
        group::add(process, Entry { comm: parent, call, after })
    })
}

pub unsafe fn ncclCommFinalize<B: Backend>(process: &'static Process<B>, comm: Comm) -> u32 {
    enter(process, "ncclCommFinalize", || {
        let comm = collectives::ready(process, comm as u64)?;
        let call = CommCall::Finalize { comm: comm.id() };
        group::add(process, Entry { comm, call, after: After::Nothing })
    })
}

pub unsafe fn ncclCommDestroy<B: Backend>(process: &'static Process<B>, comm: Comm) -> u32 {
    enter(process, "ncclCommDestroy", || {
        if comm.is_null() {
            return Ok(());
        }
        let comm = end(process, comm)?;
        let call = CommCall::Destroy { comm: comm.id() };
        group::add(process, Entry { comm, call, after: After::Nothing })
    })
}

/// Ends a communicator whatever it is doing.
pub unsafe fn ncclCommAbort<B: Backend>(process: &'static Process<B>, comm: Comm) -> u32 {
    enter(process, "ncclCommAbort", || {
        if comm.is_null() {
            return Ok(());
        }
        let comm = end(process, comm)?;
        comm.aborted.store(true, Ordering::Release);
        if process.backend.collectives_lost(comm.ctx).is_err() {
            // It has ended with its server.
            return Ok(());
        }
        alone(process, &comm, CommCall::Abort { comm: comm.id() }).map(drop)
    })
}

/// The program has no handle of the communicator any more.
fn end<B: Backend>(process: &'static Process<B>, comm: Comm) -> Outcome<Arc<Object>> {
    let found = collectives::find(process, comm as u64)?;
    process
        .communicators
        .table
        .remove(comm as u64)
        .ok_or_else(|| Failure::argument("another thread has ended the communicator"))?;
    Ok(found)
}
