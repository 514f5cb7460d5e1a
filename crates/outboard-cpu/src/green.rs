//! Green contexts of the software device.

use outboard_front::backend::GreenContexts;

use crate::backend::Cpu;

impl GreenContexts for Cpu {}
