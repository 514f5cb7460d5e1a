//! Graphs of the software device.

use outboard_front::backend::Graphs;

use crate::backend::Cpu;

impl Graphs for Cpu {}
