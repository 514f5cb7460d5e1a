//! Memory that host and device both touch: mapped and managed of a server.

use outboard_front::backend::Managed;

use super::Remote;

impl Managed for Remote {}
