//! Messages of all ranks of a communicator.

use std::ffi::{c_int, c_void};

use crate::device::DeviceMemory;
use crate::job::is_for_workers;
use crate::kinds::combine;
use crate::mpi::{Handle, SUCCESS, form, payload, rank, real, size};
use crate::staged::{Staged, Use};
use crate::together::{Circle, Place};

/// How the buffer for results is used: it has the input if that is said to be in place.
fn for_results(sent: *const c_void) -> Use {
    if form().is_in_place(sent) { Use::Changes } else { Use::Fills }
}

/// Has the workers reduce; whether they have. Where there are to be no results (`false`), memory of
/// this library's takes their place.
fn reduce_together(
    sent: *const c_void,
    (there, has_results): (Option<Place>, bool),
    (count, datatype): (c_int, Handle),
    operation: Handle,
    comm: Handle,
    receives: impl Fn(usize) -> bool,
) -> bool {
    let bytes = payload(datatype, count);
    let in_place = form().is_in_place(sent);
    let own = if in_place { there } else { Place::of(sent, count, datatype) };
    let combine = combine(datatype, operation);
    let scratch = match has_results {
        true => None,
        false => {
            own.filter(|_| is_for_workers(bytes)).and_then(|_| DeviceMemory::allocate(bytes).ok())
        }
    };
    let place = there.or_else(|| scratch.as_ref().and_then(|it| Place::at(it.memory(), bytes)));
    let ready = own.zip(place).zip(combine);
    let Some(circle) = Circle::agreed(comm, bytes, ready.is_some()) else { return false };
    let Some(((own, place), combine)) = ready else { return false };
    place.copy_from(0, &own);
    circle.reduce(&place, combine, receives)
}

/// Has the workers gather; whether they have.
fn gather_together(
    (sent, sent_count, sent_type): (*const c_void, c_int, Handle),
    (results, count, datatype): (*mut c_void, c_int, Handle),
    comm: Handle,
) -> bool {
    let (bytes, ranks) = (payload(datatype, count), size(comm));
    let all = count.checked_mul(ranks).and_then(|all| Place::of(results, all, datatype));
    let in_place = form().is_in_place(sent);
    let own = if in_place { None } else { Place::of(sent, sent_count, sent_type) };
    let ready = all.is_some() && (in_place || own.is_some());
    let Some(circle) = Circle::agreed(comm, bytes, ready) else { return false };
    let (Some(all), Ok(rank)) = (all, u64::try_from(rank(comm))) else { return false };
    if let Some(own) = own {
        all.copy_from(rank * bytes, &own);
    }
    let parts: Vec<_> =
        (0..circle.size() as u64).map(|rank| rank * bytes..(rank + 1) * bytes).collect();
    circle.spread(&all, &parts, |_| true);
    true
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Bcast(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    let place = Place::of(buffer, count, datatype);
    if let Some(circle) = Circle::agreed(comm, payload(datatype, count), place.is_some())
        && let Some((place, root)) = place.zip(usize::try_from(root).ok())
        && circle.broadcast(&place, root)
    {
        return SUCCESS;
    }
    let is_root = rank(comm) == root;
    let used = if is_root { Use::Reads } else { Use::Fills };
    let mut memory = Staged::new(buffer, count, datatype, used);
    let call = real!(c"PMPI_Bcast", fn(*mut c_void, c_int, Handle, c_int, Handle));
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe { call(memory.address(), count, datatype, root, comm) };
    if result == SUCCESS && !is_root {
        memory.written();
    }
    result
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Reduce(
    sent: *const c_void,
    results: *mut c_void,
    count: c_int,
    datatype: Handle,
    operation: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    let is_root = rank(comm) == root;
    let there = if is_root { Place::of(results, count, datatype) } else { None };
    if let Some(root) = usize::try_from(root).ok()
        && reduce_together(sent, (there, is_root), (count, datatype), operation, comm, |rank| {
            rank == root
        })
    {
        return SUCCESS;
    }
    // Elsewhere nobody looks at the buffer for results, whatever its address is.
    let all = if is_root { count } else { 0 };
    let mut memory = Staged::new(results, all, datatype, for_results(sent));
    let mut sent = Staged::new(sent, count, datatype, Use::Reads);
    let call =
        real!(c"PMPI_Reduce", fn(*mut c_void, *mut c_void, c_int, Handle, Handle, c_int, Handle));
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result =
        unsafe { call(sent.address(), memory.address(), count, datatype, operation, root, comm) };
    if result == SUCCESS {
        memory.written();
    }
    result
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce(
    sent: *const c_void,
    results: *mut c_void,
    count: c_int,
    datatype: Handle,
    operation: Handle,
    comm: Handle,
) -> c_int {
    let there = Place::of(results, count, datatype);
    if reduce_together(sent, (there, true), (count, datatype), operation, comm, |_| true) {
        return SUCCESS;
    }
    let mut memory = Staged::new(results, count, datatype, for_results(sent));
    let mut sent = Staged::new(sent, count, datatype, Use::Reads);
    let call =
        real!(c"PMPI_Allreduce", fn(*mut c_void, *mut c_void, c_int, Handle, Handle, Handle));
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result =
        unsafe { call(sent.address(), memory.address(), count, datatype, operation, comm) };
    if result == SUCCESS {
        memory.written();
    }
    result
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allgather(
    sent: *const c_void,
    sent_count: c_int,
    sent_type: Handle,
    results: *mut c_void,
    count: c_int,
    datatype: Handle,
    comm: Handle,
) -> c_int {
    if gather_together((sent, sent_count, sent_type), (results, count, datatype), comm) {
        return SUCCESS;
    }
    let mut memory = Staged::of_ranks(results, count, size(comm), datatype, for_results(sent));
    let mut sent = Staged::new(sent, sent_count, sent_type, Use::Reads);
    let call = real!(
        c"PMPI_Allgather",
        fn(*mut c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle)
    );
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe {
        call(sent.address(), sent_count, sent_type, memory.address(), count, datatype, comm)
    };
    if result == SUCCESS {
        memory.written();
    }
    result
}
