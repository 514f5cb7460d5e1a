//! Compiles PTX to machine code and runs grids of threads on the CPU.
//!
//! The crate is the engine below a software CUDA device: it knows programs, kernels, memory and
//! grids, and nothing of streams, contexts or handles.
//!
//! - [`Memory`] is one reserved arena of address space. A device address *is* a host address inside
//!   that arena, so a copy between host and device is a plain `memcpy`, and compiled code needs no
//!   translation, only a check.
//! - [`Engine::load`] compiles verified PTX modules with Cranelift into a [`Program`]; one PTX
//!   function becomes one machine function, and one CUDA thread is one activation of it.
//! - [`Engine::launch`] runs a grid: blocks are claimed in the order of their linear index by a
//!   pool of OS threads. Threads of a kernel that never waits for its neighbours run one after
//!   another in a plain loop; kernels with barriers or warp operations get a stackful coroutine per
//!   thread and a scheduler per block.
//!
//! A fault (a bad address, a failed `assert`, a trap) ends the launch with a [`Fault`] that says
//! where it happened. Faults travel as return values of the compiled functions: there are no signal
//! handlers, and nothing unwinds through compiled code.
#![warn(missing_docs, clippy::missing_errors_doc)]

mod codegen;
mod engine;
mod exec;
mod fault;
mod launch;
mod limit;
mod math;
mod memory;
mod program;
mod room;
mod rt;
pub mod texture;

pub use engine::{Engine, EngineConfig, EngineError};
pub use fault::{Fault, FaultKind, Space};
pub use launch::{Launch, OutputSink, OutputStream};
pub use limit::Limit;
pub use memory::reserved::{memory_file, named_file};
pub use memory::{Memory, OutOfMemory, Saved};
pub use program::{Kernel, KernelInfo, LoadError, ParamInfo, Program};
pub use room::with_room;
