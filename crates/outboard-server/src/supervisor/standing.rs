//! What a server that stands for long needs to know: how it ends.

use std::time::Duration;

/// How a server ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How long sessions may go on after the server was asked to stop.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config { drain: Duration::from_secs(30) }
    }
}
