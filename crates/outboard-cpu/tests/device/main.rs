//! The software device as its driver half sees it: through [`Backend`], with hand-written PTX.

mod fixture;
mod links;

mod faults;
mod memory;
mod modules;
mod streams;
