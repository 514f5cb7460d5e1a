//! What every transport has: a way to connect, and one to listen.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::stream::Stream;

/// A way to reach servers.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Its name in messages and tables: `tcp`.
    fn name(&self) -> &'static str;

    /// Connects to a server, or gives up after `timeout`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], or why the server cannot be reached.
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>>;

    /// Waits for clients.
    ///
    /// # Errors
    /// The system's error, such as [`io::ErrorKind::AddrInUse`].
    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>>;
}

/// The server's end of a transport.
pub trait Listener: Send + Sync + fmt::Debug {
    /// The next client; blocks.
    ///
    /// # Errors
    /// The system's error. Later clients may be accepted all the same.
    fn accept(&self) -> io::Result<Arc<dyn Stream>>;

    /// Where clients reach it: what to pass to [`Transport::connect`].
    ///
    /// # Errors
    /// The system's error if it does not know the socket's address.
    fn address(&self) -> io::Result<String>;
}
