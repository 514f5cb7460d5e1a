//! Messages from one rank to another.

use std::ffi::{c_int, c_void};

use crate::mpi::{Handle, Requests, SUCCESS, Status, Statuses, form, real};
use crate::probing::{Wanted, origin};
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
    fn new(buffer: Receiving, given: Status) -> Received {
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
    let wanted = Wanted { source: from, tag, comm };
    let (buffer, here) = Receiving::wanted(buffer, (count, datatype), wanted);
    let mut received = Received::new(buffer, status);
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe {
        real!(c"PMPI_Recv", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Status))(
            received.buffer.address(),
            count,
            datatype,
            here.source,
            here.tag,
            here.comm,
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
    let wanted = Wanted { source: from, tag, comm };
    let (mut memory, here) = Receiving::wanted(buffer, (count, datatype), wanted);
    // SAFETY: the memory is kept until the request is done, and the rest is the caller's.
    unsafe {
        let begin =
            real!(c"PMPI_Irecv", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Requests));
        let result =
            begin(memory.address(), count, datatype, here.source, here.tag, here.comm, request);
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
    let wanted = Wanted { source: from, tag, comm };
    let (buffer, here) = Receiving::wanted(buffer, (count, datatype), wanted);
    // Both go over one communicator in MPI's call.
    if !form().same(here.comm, comm) {
        // SAFETY: the caller's.
        return unsafe { one_by_one(sent, (to, sent_tag, comm), buffer, here, status) };
    }
    let mut received = Received::new(buffer, status);
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

/// Sends, and receives what the program has asked about.
///
/// # Safety
/// As of MPI's call for both.
unsafe fn one_by_one(
    mut sent: Sending,
    (to, tag, comm): (c_int, c_int, Handle),
    buffer: Receiving,
    here: Wanted,
    status: Status,
) -> c_int {
    let mut received = Received::new(buffer, status);
    let (count, datatype) = received.buffer.elements();
    let (mut request, own) = (0_u64, Statuses::new(std::ptr::null_mut(), 1));
    let begin =
        real!(c"PMPI_Isend", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut u64));
    // SAFETY: the memory is there until MPI is done with it, and the rest is the caller's.
    unsafe {
        let (elements, kind) = (sent.count(), sent.datatype());
        let result = begin(sent.address(), elements, kind, to, tag, comm, &mut request);
        if result != SUCCESS {
            return result;
        }
        let receive =
            real!(c"PMPI_Recv", fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Status));
        let (to, from) = (received.buffer.address(), here);
        let result =
            receive(to, count, datatype, from.source, from.tag, from.comm, received.status());
        let sent = real!(c"PMPI_Wait", fn(*mut u64, Status))(&mut request, own.get(0));
        let result = received.done(result);
        if result == SUCCESS { sent } else { result }
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Sendrecv_replace(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    to: c_int,
    sent_tag: c_int,
    from: c_int,
    tag: c_int,
    comm: Handle,
    status: Status,
) -> c_int {
    let sent = Sending::new(buffer, (count, datatype), (to, comm));
    let wanted = Wanted { source: from, tag, comm };
    let (memory, here) = Receiving::wanted(buffer, (count, datatype), wanted);
    // Of device memory, both have a buffer of their own.
    if sent.is_needed() {
        // SAFETY: the caller's.
        return unsafe { one_by_one(sent, (to, sent_tag, comm), memory, here, status) };
    }
    if !form().same(here.comm, comm) {
        // SAFETY: the buffer is the host's, and the caller's.
        let copy = unsafe { Sending::copy_of(buffer, (count, datatype)) };
        // SAFETY: the caller's.
        return unsafe { one_by_one(copy, (to, sent_tag, comm), memory, here, status) };
    }
    let mut received = Received::new(memory, status);
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe {
        real!(
            c"PMPI_Sendrecv_replace",
            fn(*mut c_void, c_int, Handle, c_int, c_int, c_int, c_int, Handle, Status)
        )(
            received.buffer.address(),
            count,
            datatype,
            to,
            sent_tag,
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
pub unsafe extern "C" fn MPI_Mrecv(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    message: *mut c_void,
    status: Status,
) -> c_int {
    // SAFETY: the caller's message.
    let origin = origin(unsafe { form().handle_at(message) });
    let buffer = Receiving::new(buffer, (count, datatype), form().world).from(origin);
    let mut received = Received::new(buffer, status);
    // SAFETY: the memory is there for the call, and the rest is the caller's.
    let result = unsafe {
        real!(c"PMPI_Mrecv", fn(*mut c_void, c_int, Handle, *mut c_void, Status))(
            received.buffer.address(),
            count,
            datatype,
            message,
            received.status(),
        )
    };
    received.done(result)
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Imrecv(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    message: *mut c_void,
    request: Requests,
) -> c_int {
    // SAFETY: the caller's message.
    let origin = origin(unsafe { form().handle_at(message) });
    let mut memory = Receiving::new(buffer, (count, datatype), form().world).from(origin);
    // SAFETY: the memory is kept until the request is done, and the rest is the caller's.
    unsafe {
        let begin = real!(c"PMPI_Imrecv", fn(*mut c_void, c_int, Handle, *mut c_void, Requests));
        let result = begin(memory.address(), count, datatype, message, request);
        if result == SUCCESS {
            requests::keep(request, UnderWay::Received(memory));
        }
        result
    }
}

/// Begins to send, and to receive.
///
/// # Safety
/// As of MPI's call for both.
unsafe fn begin_both(
    mut sent: Sending,
    (to, sent_tag, comm): (c_int, c_int, Handle),
    mut received: Receiving,
    here: Wanted,
    request: Requests,
) -> c_int {
    let (count, datatype) = received.elements();
    // SAFETY: the memory is kept until the request is done, and the rest is the caller's.
    unsafe {
        if !form().same(here.comm, comm) {
            // What is received is there already, so its request says nothing of what is sent: that
            // is a copy, which stays.
            let own = Statuses::new(std::ptr::null_mut(), 1);
            let begin = real!(
                c"PMPI_Isend",
                fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut u64)
            );
            let (mut sending, elements, kind) = (0_u64, sent.count(), sent.datatype());
            let result = begin(sent.address(), elements, kind, to, sent_tag, comm, &mut sending);
            if result != SUCCESS {
                return result;
            }
            let mut is_done = 0;
            real!(c"PMPI_Test", fn(*mut u64, *mut c_int, Status))(
                &mut sending,
                &mut is_done,
                own.get(0),
            );
            if is_done == 0 {
                requests::keep((&raw mut sending).cast(), UnderWay::Sent(sent));
            }
            let begin = real!(
                c"PMPI_Irecv",
                fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, Requests)
            );
            let (at, from) = (received.address(), here);
            let result = begin(at, count, datatype, from.source, from.tag, from.comm, request);
            if result == SUCCESS {
                requests::keep(request, UnderWay::Received(received));
            }
            return result;
        }
        let begin = real!(
            c"PMPI_Isendrecv",
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
                Requests,
            )
        );
        let (elements, kind) = (sent.count(), sent.datatype());
        let (from, into) = (sent.address(), received.address());
        let result = begin(
            from,
            elements,
            kind,
            to,
            sent_tag,
            into,
            count,
            datatype,
            here.source,
            here.tag,
            comm,
            request,
        );
        if result == SUCCESS {
            requests::keep(request, UnderWay::Both(sent, received));
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Isendrecv(
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
    request: Requests,
) -> c_int {
    let wanted = Wanted { source: from, tag, comm };
    let (received, here) = Receiving::wanted(buffer, (count, datatype), wanted);
    let elements = (sent_count, sent_type);
    let mut sending = Sending::new(sent, elements, (to, comm));
    if !form().same(here.comm, comm) && !sending.is_needed() {
        // SAFETY: the buffer is the host's, and the caller's.
        sending = unsafe { Sending::copy_of(sent, elements) };
    }
    // SAFETY: the caller's.
    unsafe { begin_both(sending, (to, sent_tag, comm), received, here, request) }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Isendrecv_replace(
    buffer: *mut c_void,
    count: c_int,
    datatype: Handle,
    to: c_int,
    sent_tag: c_int,
    from: c_int,
    tag: c_int,
    comm: Handle,
    request: Requests,
) -> c_int {
    let wanted = Wanted { source: from, tag, comm };
    let mut sent = Sending::new(buffer, (count, datatype), (to, comm));
    if !sent.is_needed() {
        // SAFETY: the buffer is the host's, and the caller's.
        sent = unsafe { Sending::copy_of(buffer, (count, datatype)) };
    }
    let (received, here) = Receiving::wanted(buffer, (count, datatype), wanted);
    // SAFETY: the caller's.
    unsafe { begin_both(sent, (to, sent_tag, comm), received, here, request) }
}
