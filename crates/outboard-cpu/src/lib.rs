//! A CUDA driver library whose device is the CPU.
//!
//! `outboard-front` holds the object model and the entry points of a driver library;
//! `outboard-simt` compiles PTX and runs grids. This crate is the device between them, [`Cpu`], an
//! implementation of [`outboard_front::backend::Backend`]: platform data, contexts, memory, streams
//! and events with CUDA's order, copies, modules, launches. Built as a `cdylib` it is a
//! `libcuda.so.1`.
//!
//! A device address is a host address inside the engine's arena, so copies are plain `memcpy`s;
//! every range is checked against the live allocations before it is queued.

mod array;
mod backend;
mod boxes;
mod checkpoint;
mod config;
mod context;
mod copy;
mod cpu;
mod device;
mod event;
mod graph;
mod green;
mod host_call;
mod ipc;
mod launch;
mod link;
mod managed;
mod memory;
mod module;
mod nvml;
mod offers;
mod output;
mod peer;
mod pool;
mod reference;
mod sched;
mod stream;
mod table;
mod texture;
mod vmm;
mod work;

use core::ffi::c_void;
use std::sync::LazyLock;

use outboard_abi::own_tables::{Described, HandleFiles};
use outboard_front::{Library, Process};

pub use cpu::Cpu;

/// The software device as a driver library.
struct Libcuda;

impl Library for Libcuda {
    type Backend = Cpu;

    fn process() -> &'static Process<Cpu> {
        static PROCESS: LazyLock<Process<Cpu>> =
            LazyLock::new(|| Process::of_library::<Libcuda>(Cpu::get()));
        &PROCESS
    }

    fn own_table(name: &[u8; 16]) -> Option<*const c_void> {
        match *name {
            Described::NAME => Some((&raw const nvml::TABLE).cast()),
            HandleFiles::NAME => Some(core::ptr::from_ref(ipc::handle_files()).cast()),
            _ => None,
        }
    }
}

outboard_front::driver_exports!(Libcuda);
