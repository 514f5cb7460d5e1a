//! The functions of `cufile.h`.

mod batch;
mod driver;
mod file;
mod parameters;
mod statistics;
mod stream;

pub(crate) use batch::*;
pub(crate) use driver::*;
pub(crate) use file::*;
pub(crate) use parameters::*;
pub(crate) use statistics::*;
pub(crate) use stream::*;
