//! `libcufile.so.0`: cuFile for the devices of a session.
//!
//! What cuFile means is here: handles, registered memory, transfers in streams, batches, settings
//! and statistics. The bytes are moved by Outboard's `libcuda.so.1` in the same process, which is
//! looked for when it is first needed: to load this library does nothing.
//!
//! Each function of `calls/` has the name and the arguments of the one in `cufile.h`; `exports`,
//! which is generated, makes symbols of them.

#![allow(non_snake_case, reason = "functions have the names that C knows")]

mod batch;
mod border;
mod buffers;
mod calls;
mod driver;
mod exports;
mod files;
mod parameters;
mod statistics;
mod status;
mod streams;
mod table;
mod transfer;
mod types;

/// Says whose library this is.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static outboard_cufile: u8 = 1;
