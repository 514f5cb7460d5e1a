//! Clients that have just connected.

use std::io;
use std::rc::Rc;

use outboard_wire::handshake::VERSION;
use tokio::time::Instant;

use super::admit;
use super::bytes_only::BytesOnly;
use super::peer::{Peer, too_many};
use super::supervisor::Supervisor;
use outboard_auth::hellos::Seat;
use outboard_auth::sparing::STRANGERS;

/// A client that has just connected.
pub(super) trait Newcomer: 'static {
    /// Writes what fits.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Reads what the client wants, and does it. `seat` is held while the client is at its hello.
    async fn admit(self, supervisor: &Supervisor, peer: Peer, seat: Seat);
}

impl Newcomer for BytesOnly {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    async fn admit(self, supervisor: &Supervisor, peer: Peer, seat: Seat) {
        let deadline = Instant::now() + supervisor.config.hello_timeout;
        admit::admit(supervisor, self, peer, seat, deadline).await;
    }
}

/// Looks after one new connection, in a task of its own.
pub(super) fn accept(supervisor: &Rc<Supervisor>, newcomer: impl Newcomer, peer: Peer) {
    let Some(seat) = supervisor.hellos.enter(peer.origin()) else {
        let refusal = too_many();
        supervisor.tally.refused(refusal.code);
        if let Some(left_out) = STRANGERS.admits("no_seat") {
            tracing::warn!(%peer, code = %refusal.error(), left_out, "refused: too many clients are connecting");
        }
        // It fits into the empty socket buffer; if not, nothing waits for it.
        let _ = newcomer.write_now(&refusal.encode(VERSION));
        return;
    };
    let supervisor = Rc::clone(supervisor);
    tokio::task::spawn_local(async move {
        let _coming = supervisor.coming.enter();
        newcomer.admit(&supervisor, peer, seat).await;
    });
}
