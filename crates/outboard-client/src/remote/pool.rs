//! Memory pools of a server.

use outboard_front::backend::Pools;

use super::Remote;

impl Pools for Remote {}
