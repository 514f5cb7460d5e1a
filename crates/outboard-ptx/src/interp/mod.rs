//! An interpreter of the verified program: the oracle for the compiler.
//!
//! It runs one thread, instruction by instruction, with arithmetic that is as plain as possible
//! (integers in 128 bits, floating point in big integers rounded once). It is slow and meant for
//! tests. Operations among threads are refused, except that a block of one thread passes its
//! barriers.
//!
//! ```
//! use outboard_ptx::interp::{Flat, run};
//!
//! let text = ".version 9.0\n.target sm_75\n.entry add(.param .u64 to, .param .f32 x) {
//!     .reg .b64 %d; .reg .f32 %f;
//!     ld.param.u64 %d, [to]; ld.param.f32 %f, [x]; add.rz.f32 %f, %f, 0f3F800000; st.global.f32 [%d], %f; }";
//! let module = outboard_ptx::parse(text)?;
//! let mut world = Flat::new(&module, 256);
//! let to = world.data;
//! let params = [&to.to_le_bytes()[..], &0.5f32.to_le_bytes()].concat();
//! run(&module, "add", &params, &mut world, 1000).unwrap();
//! let at = (to - Flat::BASE) as usize;
//! assert_eq!(world.bytes[at..at + 4], 1.5f32.to_le_bytes());
//! # Ok::<(), outboard_ptx::Error>(())
//! ```
//!
//! What compiled code may do differently: the approximate functions (here nearly exact), the
//! payload of NaNs, results that PTX leaves undefined.

mod convert;
mod float;
mod int;
mod machine;
pub mod samples;
mod soft;
mod step;
mod world;

pub use machine::Machine;
pub use world::{Flat, Stop, World};

use crate::ir::{FuncId, Module};

/// Runs the kernel (or function without parameters in registers) `name` with the given parameter
/// buffer, at most `steps` instructions.
///
/// # Errors
///
/// Why it stopped, unless it returned or exited. A name that does not exist counts as
/// [`Stop::NotScalar`].
pub fn run(
    module: &Module,
    name: &str,
    params: &[u8],
    world: &mut impl World,
    steps: u64,
) -> Result<(), Stop> {
    let index = module.functions.iter().position(|function| function.name == name);
    let Some(index) = index else {
        return Err(Stop::NotScalar { line: 0, what: format!("'{name}', which does not exist,") });
    };
    let mut machine = Machine::new(module, world, steps);
    match machine.call(FuncId(index as u32), params) {
        Ok(_) | Err(Stop::Exit) => Ok(()),
        Err(stop) => Err(stop),
    }
}
