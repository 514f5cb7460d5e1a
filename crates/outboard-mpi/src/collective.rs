//! Messages of all ranks of a communicator.

use std::ffi::{c_int, c_void};

use crate::mpi::{Handle, SUCCESS, form, rank, real, size};
use crate::staged::{Staged, Use};

/// How the buffer for results is used: it has the input if that is said to be in place.
fn for_results(sent: *const c_void) -> Use {
    if form().is_in_place(sent) { Use::Changes } else { Use::Fills }
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
