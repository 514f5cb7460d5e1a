//! `libnccl.so.2`: NCCL for the devices of a session.
//!
//! NCCL itself runs on the servers, beside the GPUs. Each function here calls one of Outboard's
//! `libcuda.so.1` in the same process, which it finds when it is first called: to load this library
//! does nothing.

mod exports;
mod own;
mod table;

/// Says whose library this is: a server with it in its library path must not take it for NCCL.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static outboard_nccl: u8 = 1;
