//! Device memory in messages of an MPI that knows none.
//!
//! The library is preloaded. It defines MPI's functions that send and receive, and calls the
//! program's own MPI by its profiling interface, `PMPI_...`. Where a buffer is device memory, MPI
//! gets host memory in its place, and the bytes are copied there before the call or back after it.
//!
//! Of a large message MPI gets a header only ([`header`]), if both ranks' devices are on servers
//! ([`job`]): the sender's worker keeps the bytes ([`sending`]), and the receiver's asks for them
//! once MPI has matched the header ([`receiving`]).
//!
//! One library is for Open MPI and for MPICH and its kin: a handle passes through as the register
//! that holds it, whether it is a pointer or an `int`.

#![allow(unreachable_pub, reason = "the loader reaches what is exported")]

mod collective;
mod device;
mod header;
mod job;
mod kinds;
mod large;
mod mpi;
mod persistent;
mod point_to_point;
mod probing;
mod receiving;
mod requests;
mod sending;
mod staged;
mod start;
mod together;
mod waits;
mod worker;
