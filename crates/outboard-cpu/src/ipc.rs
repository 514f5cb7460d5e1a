//! Memory and events shared among processes of the software device.

use outboard_front::backend::Sharing;

use crate::backend::Cpu;

impl Sharing for Cpu {}
