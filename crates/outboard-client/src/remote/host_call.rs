//! Functions of the program that a stream calls of a server.

use outboard_front::backend::HostCalls;

use super::Remote;

impl HostCalls for Remote {}
