//! Requests that are started again and again. Their buffers are the host's; what they receive may
//! be a header.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::job::job;
use crate::mpi::{Handle, Requests, SUCCESS, form, real};
use crate::receiving::Receiving;

/// What a request receives.
#[derive(Clone, Copy)]
struct Again {
    buffer: usize,
    count: c_int,
    datatype: Handle,
    comm: Handle,
}

static ALL: LazyLock<Mutex<HashMap<u64, Again>>> = LazyLock::new(Mutex::default);

fn all() -> MutexGuard<'static, HashMap<u64, Again>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The buffer of a request, if it is one of these.
pub(crate) fn receiving(number: u64) -> Option<Receiving> {
    let Again { buffer, count, datatype, comm } = *all().get(&number)?;
    Some(Receiving::new(buffer as *mut c_void, (count, datatype), comm))
}

/// Whether there are any.
pub(crate) fn are_there() -> bool {
    job().is_some() && !all().is_empty()
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Recv_init(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    from: c_int,
    tag: c_int,
    comm: Handle,
    request: Requests,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let make = real!(
            c"PMPI_Recv_init",
            fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Requests)
        );
        let result = make(buffer, count, datatype, from, tag, comm, request);
        if result == SUCCESS && job().is_some() {
            let again = Again { buffer: buffer as usize, count, datatype, comm };
            all().insert(form().requests(request, 1)[0], again);
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Request_free(request: Requests) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        all().remove(&form().requests(request, 1)[0]);
        real!(c"PMPI_Request_free", fn(Requests))(request)
    }
}
