//! Memory that host and device both touch: mapped and managed of the software device.

use outboard_front::backend::Managed;

use crate::backend::Cpu;

impl Managed for Cpu {}
