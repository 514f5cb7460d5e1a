//! The linker of a server.

use outboard_front::backend::Linking;

use super::Remote;

impl Linking for Remote {}
