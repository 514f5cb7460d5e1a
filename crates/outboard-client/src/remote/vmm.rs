//! The virtual-memory calls of a server.

use outboard_front::backend::VirtualMemory;

use super::Remote;

impl VirtualMemory for Remote {}
