//! Memory pools of the software device.

use outboard_front::backend::Pools;

use crate::backend::Cpu;

impl Pools for Cpu {}
