//! The session's part of memory that its client's virtual machine and this host share, to which the
//! client may move each connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use outboard_transport::ivshmem::{Part, take_up};
use outboard_transport::{Outcome, Stream};
use outboard_wire::handshake::ivshmem::Offer;

use super::adapters::PATIENCE;
use super::secure::Secure;

/// The part.
#[derive(Debug, Clone)]
pub(super) struct Region {
    part: Arc<Part>,
    offset: u64,
    bytes: u64,
}

impl Region {
    pub(super) fn map(file: OwnedFd, offset: u64, bytes: u64) -> io::Result<Region> {
        Ok(Region { part: Part::map(file, offset, bytes)?, offset, bytes })
    }

    /// What the client is told.
    pub(super) fn offer(&self) -> Offer {
        Offer { offset: self.offset, bytes: self.bytes, missing: String::new() }
    }

    /// Waits for what the client does with a connection, and does the same. Other users of the
    /// client's machine may read the memory, so bytes that were encrypted stay so.
    pub(super) fn settle(
        &self,
        met: Arc<dyn Stream>,
        secure: Option<&Secure>,
    ) -> io::Result<Arc<dyn Stream>> {
        match take_up(&met, &self.part, Instant::now() + PATIENCE)? {
            Outcome::Moved(stream) => match secure {
                None => Ok(stream),
                Some(secure) => secure.accept(stream),
            },
            Outcome::Stays(why) => {
                if let Some(error) = why {
                    tracing::info!(%error, "a connection does not move to shared memory");
                }
                Ok(met)
            }
        }
    }
}
