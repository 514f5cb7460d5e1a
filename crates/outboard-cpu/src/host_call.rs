//! Functions of the program that a stream calls of the software device.

use outboard_front::backend::HostCalls;

use crate::backend::Cpu;

impl HostCalls for Cpu {}
