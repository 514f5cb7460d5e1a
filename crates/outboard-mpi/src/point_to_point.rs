//! Messages from one rank to another.

use std::ffi::{c_int, c_void};

use crate::mpi::{Handle, Requests, SUCCESS, Status, Statuses, real, received};
use crate::requests;
use crate::staged::{Staged, Use};

/// Functions that send and return when the buffer may be used again.
macro_rules! sending {
    ($($name:ident $real:literal),*) => {$(
        /// # Safety
        /// As MPI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            buffer: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle,
        ) -> c_int {
            let mut sent = Staged::new(buffer, count, datatype, Use::Reads);
            // SAFETY: the memory is there for the call, and the rest is the caller's.
            unsafe {
                real!($real, fn(*mut c_void, c_int, Handle, c_int, c_int, Handle))(
                    sent.address(), count, datatype, to, tag, comm)
            }
        }
    )*};
}
sending!(MPI_Send c"PMPI_Send", MPI_Ssend c"PMPI_Ssend", MPI_Rsend c"PMPI_Rsend", MPI_Bsend c"PMPI_Bsend");

/// Functions that begin to send.
macro_rules! beginning_to_send {
    ($($name:ident $real:literal),*) => {$(
        /// # Safety
        /// As MPI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            buffer: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle,
            request: Requests,
        ) -> c_int {
            let mut sent = Staged::new(buffer, count, datatype, Use::Reads);
            // SAFETY: the memory is kept until the request is done, and the rest is the caller's.
            unsafe {
                let result = real!($real, fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Requests))(
                    sent.address(), count, datatype, to, tag, comm, request);
                if result == SUCCESS {
                    requests::keep(request, sent, None);
                }
                result
            }
        }
    )*};
}
beginning_to_send!(MPI_Isend c"PMPI_Isend", MPI_Issend c"PMPI_Issend", MPI_Irsend c"PMPI_Irsend",
    MPI_Ibsend c"PMPI_Ibsend");

/// The buffer for a message that a call receives before it returns.
struct Received {
    memory: Staged,
    datatype: Handle,
    /// The program's own, which may be none.
    given: Status,
    statuses: Statuses,
}

impl Received {
    fn new(buffer: *mut c_void, count: c_int, datatype: Handle, given: Status) -> Received {
        let memory = Staged::new(buffer, count, datatype, Use::Fills);
        Received { memory, datatype, given, statuses: Statuses::new(given, 1) }
    }

    /// What MPI gets: how much has come into device memory must be said.
    fn status(&self) -> Status {
        if self.memory.is_device_memory() { self.statuses.get(0) } else { self.given }
    }

    /// The call has returned this.
    fn done(self, result: c_int) -> c_int {
        if result == SUCCESS && self.memory.is_device_memory() {
            let elements = received(self.status(), self.datatype);
            self.memory.written_in_part(elements);
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Recv(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    from: c_int,
    tag: c_int,
    comm: Handle,
    status: Status,
) -> c_int {
    let mut received = Received::new(buffer, count, datatype, status);
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe {
        real!(c"PMPI_Recv", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Status))(
            received.memory.address(),
            count,
            datatype,
            from,
            tag,
            comm,
            received.status(),
        )
    };
    received.done(result)
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Irecv(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    from: c_int,
    tag: c_int,
    comm: Handle,
    request: Requests,
) -> c_int {
    let mut memory = Staged::new(buffer, count, datatype, Use::Fills);
    // SAFETY: the memory is kept until the request is done, and the rest is the caller's.
    unsafe {
        let begin =
            real!(c"PMPI_Irecv", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Requests));
        let result = begin(memory.address(), count, datatype, from, tag, comm, request);
        if result == SUCCESS {
            requests::keep(request, memory, Some(datatype));
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Sendrecv(
    sent: *const c_void,
    sent_count: c_int,
    sent_type: Handle,
    to: c_int,
    sent_tag: c_int,
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    from: c_int,
    tag: c_int,
    comm: Handle,
    status: Status,
) -> c_int {
    let mut sent = Staged::new(sent, sent_count, sent_type, Use::Reads);
    let mut received = Received::new(buffer, count, datatype, status);
    let call = real!(
        c"PMPI_Sendrecv",
        fn(
            *mut c_void,
            c_int,
            Handle,
            c_int,
            c_int,
            *mut c_void,
            c_int,
            Handle,
            c_int,
            c_int,
            Handle,
            Status,
        )
    );
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe {
        call(
            sent.address(),
            sent_count,
            sent_type,
            to,
            sent_tag,
            received.memory.address(),
            count,
            datatype,
            from,
            tag,
            comm,
            received.status(),
        )
    };
    received.done(result)
}
