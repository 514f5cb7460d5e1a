//! Executables of graphs whose nodes are on several servers, and launches in streams of another
//! server than the executable's.
//!
//! A graph is cut into *pieces*, each of which one server runs as a graph, and copies between
//! servers ([`split`]). A launch queues these steps in streams of the executable's own, its
//! *tracks*, and has them wait for each other by events ([`launch`]): neither a thread waits, nor a
//! server's dispatcher.

mod flat;
mod home;
mod launch;
mod make;
mod plan;
mod site;
mod split;
mod update;

pub(crate) use launch::{launch, upload};
pub(crate) use make::{contexts, elsewhere, forget, make};
pub(crate) use update::{enable, set, set_child, update};
