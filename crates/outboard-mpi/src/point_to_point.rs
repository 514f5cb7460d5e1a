//! Messages from one rank to another.

use std::ffi::{c_int, c_void};

use crate::mpi::{Handle, Requests, SUCCESS, Status, Statuses, real};
use crate::receiving::Receiving;
use crate::requests::{self, UnderWay};
use crate::sending::Sending;

/// Functions that send and return when the buffer may be used again.
macro_rules! sending {
    ($($name:ident $real:literal),*) => {$(
        /// # Safety
        /// As MPI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            buffer: *const c_void, count: c_int, datatype: Handle, to: c_int, tag: c_int, comm: Handle,
        ) -> c_int {
            let mut sent = Sending::new(buffer, (count, datatype), (to, comm));
            // SAFETY: the memory is there for the call, and the rest is the caller's.
            unsafe {
                real!($real, fn(*mut c_void, c_int, Handle, c_int, c_int, Handle))(
                    sent.address(), sent.count(), sent.datatype(), to, tag, comm)
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
            let mut sent = Sending::new(buffer, (count, datatype), (to, comm));
            // SAFETY: the memory is kept until the request is done, and the rest is the caller's.
            unsafe {
                let result = real!($real, fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Requests))(
                    sent.address(), sent.count(), sent.datatype(), to, tag, comm, request);
                if result == SUCCESS {
                    requests::keep(request, UnderWay::Sent(sent));
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
    buffer: Receiving,
    /// The program's own, which may be none.
    given: Status,
    statuses: Statuses,
}

impl Received {
    fn new(
        buffer: *mut c_void,
        elements: (c_int, Handle),
        comm: Handle,
        given: Status,
    ) -> Received {
        let buffer = Receiving::new(buffer, elements, comm);
        Received { buffer, given, statuses: Statuses::new(given, 1) }
    }

    /// What MPI gets: how much has come must be said.
    fn status(&self) -> Status {
        if self.buffer.is_watched() { self.statuses.get(0) } else { self.given }
    }

    /// The call has returned this.
    fn done(self, result: c_int) -> c_int {
        if result != SUCCESS || !self.buffer.is_watched() {
            return result;
        }
        let status = self.status();
        self.buffer.finish(status)
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
    let mut received = Received::new(buffer, (count, datatype), comm, status);
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe {
        real!(c"PMPI_Recv", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Status))(
            received.buffer.address(),
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
    let mut memory = Receiving::new(buffer, (count, datatype), comm);
    // SAFETY: the memory is kept until the request is done, and the rest is the caller's.
    unsafe {
        let begin =
            real!(c"PMPI_Irecv", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Requests));
        let result = begin(memory.address(), count, datatype, from, tag, comm, request);
        if result == SUCCESS {
            requests::keep(request, UnderWay::Received(memory));
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
    let mut sent = Sending::new(sent, (sent_count, sent_type), (to, comm));
    let mut received = Received::new(buffer, (count, datatype), comm, status);
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
            sent.count(),
            sent.datatype(),
            to,
            sent_tag,
            received.buffer.address(),
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
