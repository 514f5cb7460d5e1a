//! One look at a server.

use serde::Serialize;

use crate::gauges::Gauge;
use crate::sessions::Rated;

/// One look at everything.
#[derive(Serialize, Default, Clone)]
pub(super) struct Look {
    pub(super) server: Rated,
    pub(super) devices: Vec<Gauge>,
}
