//! Device memory in messages of an MPI that knows none.
//!
//! The library is preloaded. It defines MPI's functions that send and receive, and calls the
//! program's own MPI by its profiling interface, `PMPI_...`. Where a buffer is device memory, MPI
//! gets host memory in its place, and the bytes are copied there before the call or back after it.
//!
//! One library is for Open MPI and for MPICH and its kin: a handle passes through as the register
//! that holds it, whether it is a pointer or an `int`.

#![allow(unreachable_pub, reason = "the loader reaches what is exported")]

mod collective;
mod device;
mod mpi;
mod point_to_point;
mod requests;
mod staged;
mod waits;
