//! Graphs of a server.

use outboard_front::backend::Graphs;

use super::Remote;

impl Graphs for Remote {}
