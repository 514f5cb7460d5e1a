//! The front alone: tests are programs, over a back end that records.

// Entry points are imported here, and nowhere else in the tests.
use crate::calls::array::*;
use crate::calls::capture::*;
use crate::calls::collectives::*;
use crate::calls::context::*;
use crate::calls::copy::*;
use crate::calls::device::*;
use crate::calls::event::*;
use crate::calls::function::*;
use crate::calls::graph::*;
use crate::calls::green::*;
use crate::calls::host::*;
use crate::calls::init::*;
use crate::calls::ipc::*;
use crate::calls::launch::*;
use crate::calls::library::*;
use crate::calls::link::*;
use crate::calls::managed::*;
use crate::calls::memory::*;
use crate::calls::memset::*;
use crate::calls::module::*;
use crate::calls::occupancy::*;
use crate::calls::peer::*;
use crate::calls::pointer::*;
use crate::calls::pool::*;
use crate::calls::reference::*;
use crate::calls::stream::*;
use crate::calls::texture::*;
use crate::calls::vmm::*;
use crate::stream::DefaultStream;

/// Calls an entry point of a [`Program`]'s process.
macro_rules! call {
    ($program:expr, $entry:ident $(, $argument:expr)* $(,)?) => {
        // SAFETY: what a test gives an entry point is its own memory, valid during the call, or
        // numbers.
        unsafe { $entry($program.process $(, $argument)*) }
    };
}

/// As `call`, for an entry point whose first argument is where the answer goes: gives that.
macro_rules! ask {
    ($program:expr, $entry:ident $(, $argument:expr)* $(,)?) => {{
        let mut answer = $crate::tests::program::nothing();
        call!($program, $entry, &raw mut answer $(, $argument)*).map(|()| answer)
    }};
}

mod program;

mod capture;
mod cases;
mod collectives;
mod copies;
mod failures;
mod files;
mod forked;
mod order;
mod parts;
mod processes;
pub(crate) mod servers;
mod spread;
mod sticky;
mod variables;
