//! The virtual-memory calls of the software device.

use outboard_front::backend::VirtualMemory;

use crate::backend::Cpu;

impl VirtualMemory for Cpu {}
