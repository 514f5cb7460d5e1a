//! The connection to one server: posts and calls in one total order, and the threads that move their bytes.
//!
//! - [`Link::post`] appends a command and returns. A sender thread writes what has piled up.
//! - [`Link::call`] appends a command, writes everything pending itself, and reads replies itself until its own has
//!   come. Of several threads that wait, one reads for all (the leader); when it leaves, another takes over.
//! - If the connection fails, every waiting and every later call and post returns [`LinkError::Lost`].
//!
//! The threads here live in someone else's process: they raise no signal, are joined by nobody, and hold no lock
//! while they block, except the one that says who reads, or who writes. A forked child has none of them and must not
//! use the link, only [`Link::abandon`] it.

mod config;
mod connect;
mod receive;
mod sender;
mod shared;
mod stats;

use std::io;
use std::sync::Arc;

use outboard_transport::{Stream, Transport};
use outboard_wire::Writer;
use outboard_wire::handshake::{Hello, Welcome};

pub use config::Config;
pub use connect::{ConnectError, handshake};
pub use stats::Stats;

use shared::Shared;

/// The connection to one server.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    process: u32,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The command's number in the session's order.
    pub seq: u64,
    /// A CUresult.
    pub status: u32,
    /// What the command returns, encoded.
    pub payload: Vec<u8>,
}

/// Why a post or call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The connection is gone, for this and all later commands.
    #[error("the connection to the server is lost: {0}")]
    Lost(Arc<str>),
    /// The command does not fit into a frame. Nothing was sent.
    #[error(transparent)]
    TooLong(#[from] outboard_session::TooLong),
}

/// Takes what the worker says unasked: the code and the encoded payload. It runs on whichever thread reads, which
/// holds the right to read meanwhile: it must be quick and must not use the link.
pub type NoticeHandler = Box<dyn Fn(u16, &[u8]) + Send + Sync>;

impl Link {
    /// Connects to a server, introduces the client, and starts the link.
    pub fn connect(
        transport: &dyn Transport,
        address: &str,
        hello: &Hello,
        config: Config,
        notices: NoticeHandler,
    ) -> Result<(Link, Welcome), ConnectError> {
        let (stream, welcome) = connect::connect(transport, address, hello, &config)?;
        let link = Link::start(stream, config, notices).map_err(ConnectError::Local)?;
        Ok((link, welcome))
    }

    /// Starts a link on a stream whose handshake is done.
    pub fn start(stream: Arc<dyn Stream>, config: Config, notices: NoticeHandler) -> io::Result<Link> {
        let shared = Arc::new(Shared::new(stream, config, notices)?);
        sender::start(Arc::clone(&shared))?;
        Ok(Link { shared, process: std::process::id() })
    }

    /// Appends a command that is not waited for, and returns its number. Blocks only while the queue is full.
    ///
    /// `ctx` is the client's name for the calling thread's current context, 0 for none.
    #[inline]
    pub fn post(&self, op: u16, ctx: u32, encode: impl FnOnce(&mut Writer)) -> Result<u64, LinkError> {
        self.shared.post(op, ctx, encode)
    }

    /// Appends a command, sends everything pending, and waits for its reply.
    pub fn call(&self, op: u16, ctx: u32, encode: impl FnOnce(&mut Writer)) -> Result<Reply, LinkError> {
        self.shared.call(op, ctx, encode)
    }

    /// Sends everything posted so far, without waiting for any reply.
    pub fn flush(&self) -> Result<(), LinkError> {
        self.shared.flush()
    }

    /// Whether the connection is still up, as far as known.
    #[inline]
    pub fn is_alive(&self) -> bool {
        !self.shared.is_lost()
    }

    /// Number of the last command posted or called.
    pub fn last(&self) -> u64 {
        self.shared.last()
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Which transport, and the peer's address.
    pub fn peer(&self) -> (&'static str, String) {
        (self.shared.stream.transport(), self.shared.stream.peer())
    }

    /// Ends the connection now, unsent commands included. All waiting threads return [`LinkError::Lost`].
    pub fn close(&self) {
        self.shared.lose("it was closed");
    }

    /// In a forked child: lets go of the connection without touching the parent's. Takes no locks.
    pub fn abandon(&self) {
        // The child inherits nothing else that needs letting go, and has no one to tell of an error.
        let _ = self.shared.stream.abandon();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // In a forked child the connection is the parent's, and the locks may be held for ever.
        if std::process::id() == self.process {
            self.shared.lose("it was closed");
        }
    }
}
