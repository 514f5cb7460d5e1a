//! To what a session may move its connections, if client and server have something faster.

use std::sync::Arc;
use std::time::Instant;

use outboard_transport::{Stream, stay};

use super::adapters::Adapters;
use super::bulk::lending::Lending;
use super::config::Choice;
use super::connect::{Secured, broken};
use super::error::ConnectError;
use super::region::Region;

/// What stands before the name of what a session might use, and why it does not.
pub const NOT_USED: &str = "does not use";

/// Which of a session's connections this is, if it is known again after a loss: the number of a
/// lane, or this for the one with the commands.
pub(super) const COMMANDS: Option<u32> = Some(u32::MAX);

/// What became of a connection: it, and if it has not moved, why.
pub(super) type Settled = (Arc<dyn Stream>, Option<String>);

/// A session whose connections may move. The worker expects of each that the client says whether it
/// does.
pub enum Movable {
    /// To RDMA adapters.
    Adapters(Box<Adapters>),
    /// To memory that this virtual machine and its host share.
    Region(Region),
}

impl Movable {
    /// The name in settings of that to which they move, and the choice of it.
    pub(super) fn to(&self) -> (&'static str, Choice) {
        match self {
            Movable::Adapters(_) => ("rdma", Choice::Rdma),
            Movable::Region(_) => ("ivshmem", Choice::Ivshmem),
        }
    }

    /// Memory that the session lends to an adapter of the server's.
    pub(super) fn lending(&self) -> Arc<Lending> {
        match self {
            Movable::Adapters(adapters) => adapters.lending(),
            Movable::Region(_) => Arc::default(),
        }
    }

    /// The connection goes on as it is.
    pub(super) fn stay(&self, met: &dyn Stream, address: &str) -> Result<(), ConnectError> {
        stay(met).map_err(|error| broken(address, error))
    }

    /// Moves the connection, if it can be.
    pub(super) fn settle(
        &self,
        met: Arc<dyn Stream>,
        secured: Option<&Secured>,
        connection: Option<u32>,
        address: &str,
        deadline: Instant,
    ) -> Result<Settled, ConnectError> {
        match self {
            Movable::Adapters(adapters) => {
                adapters.settle(met, secured, connection, address, deadline)
            }
            Movable::Region(region) => region.settle(met, secured, address, deadline),
        }
    }
}
