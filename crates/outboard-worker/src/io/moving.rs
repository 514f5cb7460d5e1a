//! To what the client may move each connection of its session, if there is something.

use std::io;
use std::sync::Arc;

use outboard_transport::Stream;

use super::adapters::Adapters;
use super::bulk::Direct;
use super::region::Region;
use super::secure::Secure;

#[derive(Clone)]
pub(super) enum Moving {
    Adapters(Adapters),
    Region(Region),
}

impl Moving {
    /// Waits for what the client does with a connection that it has opened, and does the same.
    /// Memory that the client lends to adapters is for `borrowing`.
    pub(super) fn settle(
        &self,
        met: Arc<dyn Stream>,
        secure: Option<&Secure>,
        borrowing: &Direct,
    ) -> io::Result<Arc<dyn Stream>> {
        match self {
            Moving::Adapters(adapters) => adapters.settle(met, secure, Some(borrowing)),
            Moving::Region(region) => region.settle(met, secure),
        }
    }
}
