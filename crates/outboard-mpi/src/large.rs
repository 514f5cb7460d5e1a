//! Functions of MPI 4 whose counts have 64 bits: those that this library has go on as the ones with
//! an `int`, as only these know device memory and headers.

use std::ffi::{c_int, c_void};

use crate::collective::*;
use crate::mpi::{Handle, Requests, Status, fail};
use crate::persistent::MPI_Recv_init;
use crate::point_to_point::*;

fn int(count: i64) -> c_int {
    c_int::try_from(count).unwrap_or_else(|_| {
        fail(
            "a message has more than 2^31 elements, which `outboard run --mpi` does not support: \
             use a larger datatype",
        )
    })
}

macro_rules! large {
    ($($name:ident $with_int:ident ($($argument:ident: $type:ty),*)
        ($($given:expr),*));* $(;)?) => {$(
        /// # Safety
        /// As MPI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's.
            unsafe { $with_int($($given),*) }
        }
    )*};
}

macro_rules! large_sends {
    ($($name:ident $with_int:ident),*) => {
        large! {$(
            $name $with_int (buffer: *const c_void, count: i64, datatype: Handle, to: c_int,
                tag: c_int, comm: Handle)
                (buffer, int(count), datatype, to, tag, comm);
        )*}
    };
}
large_sends!(MPI_Send_c MPI_Send, MPI_Ssend_c MPI_Ssend, MPI_Rsend_c MPI_Rsend, MPI_Bsend_c MPI_Bsend);

macro_rules! large_beginnings {
    ($($name:ident $with_int:ident $pointer:ty),*) => {
        large! {$(
            $name $with_int (buffer: $pointer, count: i64, datatype: Handle, rank: c_int,
                tag: c_int, comm: Handle, request: Requests)
                (buffer, int(count), datatype, rank, tag, comm, request);
        )*}
    };
}
large_beginnings!(MPI_Isend_c MPI_Isend *const c_void, MPI_Issend_c MPI_Issend *const c_void,
    MPI_Irsend_c MPI_Irsend *const c_void, MPI_Ibsend_c MPI_Ibsend *const c_void,
    MPI_Irecv_c MPI_Irecv *mut c_void, MPI_Recv_init_c MPI_Recv_init *mut c_void);

large! {
    MPI_Recv_c MPI_Recv (buffer: *mut c_void, count: i64, datatype: Handle, from: c_int, tag: c_int,
        comm: Handle, status: Status)
        (buffer, int(count), datatype, from, tag, comm, status);
    MPI_Bcast_c MPI_Bcast (buffer: *mut c_void, count: i64, datatype: Handle, root: c_int,
        comm: Handle)
        (buffer, int(count), datatype, root, comm);
    MPI_Reduce_c MPI_Reduce (sent: *const c_void, results: *mut c_void, count: i64,
        datatype: Handle, operation: Handle, root: c_int, comm: Handle)
        (sent, results, int(count), datatype, operation, root, comm);
    MPI_Allreduce_c MPI_Allreduce (sent: *const c_void, results: *mut c_void, count: i64,
        datatype: Handle, operation: Handle, comm: Handle)
        (sent, results, int(count), datatype, operation, comm);
    MPI_Allgather_c MPI_Allgather (sent: *const c_void, sent_count: i64, sent_type: Handle,
        results: *mut c_void, count: i64, datatype: Handle, comm: Handle)
        (sent, int(sent_count), sent_type, results, int(count), datatype, comm);
    MPI_Mrecv_c MPI_Mrecv (buffer: *mut c_void, count: i64, datatype: Handle, message: *mut c_void,
        status: Status)
        (buffer, int(count), datatype, message, status);
    MPI_Imrecv_c MPI_Imrecv (buffer: *mut c_void, count: i64, datatype: Handle,
        message: *mut c_void, request: Requests)
        (buffer, int(count), datatype, message, request);
    MPI_Sendrecv_c MPI_Sendrecv (sent: *const c_void, sent_count: i64, sent_type: Handle, to: c_int,
        sent_tag: c_int, buffer: *mut c_void, count: i64, datatype: Handle, from: c_int, tag: c_int,
        comm: Handle, status: Status)
        (sent, int(sent_count), sent_type, to, sent_tag, buffer, int(count), datatype, from, tag,
        comm, status);
    MPI_Sendrecv_replace_c MPI_Sendrecv_replace (buffer: *mut c_void, count: i64, datatype: Handle,
        to: c_int, sent_tag: c_int, from: c_int, tag: c_int, comm: Handle, status: Status)
        (buffer, int(count), datatype, to, sent_tag, from, tag, comm, status);
    MPI_Isendrecv_c MPI_Isendrecv (sent: *const c_void, sent_count: i64, sent_type: Handle,
        to: c_int, sent_tag: c_int, buffer: *mut c_void, count: i64, datatype: Handle, from: c_int,
        tag: c_int, comm: Handle, request: Requests)
        (sent, int(sent_count), sent_type, to, sent_tag, buffer, int(count), datatype, from, tag,
        comm, request);
    MPI_Isendrecv_replace_c MPI_Isendrecv_replace (buffer: *mut c_void, count: i64,
        datatype: Handle, to: c_int, sent_tag: c_int, from: c_int, tag: c_int, comm: Handle,
        request: Requests)
        (buffer, int(count), datatype, to, sent_tag, from, tag, comm, request);
}
