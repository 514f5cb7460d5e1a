//! The linker of the software device.

use outboard_front::backend::Linking;

use crate::backend::Cpu;

impl Linking for Cpu {}
