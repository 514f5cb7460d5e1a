//! Arrays, textures and surfaces of a server.

use outboard_front::backend::Arrays;

use super::Remote;

impl Arrays for Remote {}
