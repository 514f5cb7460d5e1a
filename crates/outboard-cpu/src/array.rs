//! Arrays, textures and surfaces of the software device.

use outboard_front::backend::Arrays;

use crate::backend::Cpu;

impl Arrays for Cpu {}
