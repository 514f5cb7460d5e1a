//! Memory and events shared among processes of a server.

use outboard_front::backend::Sharing;

use super::Remote;

impl Sharing for Remote {}
