//! The parts of the folder.

pub(crate) mod state;
