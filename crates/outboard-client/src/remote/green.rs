//! Green contexts of a server.

use outboard_front::backend::GreenContexts;

use super::Remote;

impl GreenContexts for Remote {}
