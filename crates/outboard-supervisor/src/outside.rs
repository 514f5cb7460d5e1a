//! What a worker's sandbox keeps from it, as the supervisor does it: the network beyond this
//! server's clients, files, some system calls.

use std::sync::Arc;

use outboard_wire::handshake::Local;

use super::calls::Calls;
use super::collectives::Sockets;
use super::config::Config;
use super::dial::Dialer;
use super::files::Files;

/// What the supervisor does there for workers.
pub(crate) struct Outside {
    /// Connections for links to other servers.
    pub(crate) dialer: Dialer,
    /// Sockets for collectives.
    pub(crate) sockets: Sockets,
    /// Files that the server shares.
    pub(crate) files: Files,
    /// System calls.
    pub(crate) calls: Arc<Calls>,
}

impl Outside {
    /// As it is set, of a server whose own Unix socket is there.
    pub(crate) fn new(config: &Config, own: Option<Local>) -> Outside {
        Outside {
            dialer: Dialer::new(config.peers.clone(), own),
            sockets: Sockets::new(&config.collectives, &config.peers, &config.listen),
            files: Files::new(config.files.clone()),
            calls: Arc::new(Calls::new(config.record_calls)),
        }
    }
}
