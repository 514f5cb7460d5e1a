//! How long sessions outlive their connections.

use std::time::Duration;

use outboard_supervisor::Config;

use crate::time;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// How many seconds the server keeps a session, with its memory, after its client has fallen
    /// silent; a client that returns in time resumes the session. 0 ends a session with its
    /// connection.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = time::seconds_between(0, 86_400))]
    grace: u64,
    /// The same after the connection was closed, as when the client's program is killed. A program
    /// that ends by itself ends its session.
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = time::seconds_between(0, 86_400))]
    closed_grace: u64,
    /// After how many seconds without an answer a client counts as gone.
    #[arg(long, default_value_t = 15, value_name = "SECONDS", value_parser = time::seconds_between(3, 3600))]
    keepalive: u64,
}

impl Args {
    pub(crate) fn apply(&self, config: &mut Config) {
        config.resume.grace = Duration::from_secs(self.grace);
        config.resume.closed_grace = Duration::from_secs(self.closed_grace);
        config.resume.keepalive = Duration::from_secs(self.keepalive);
    }
}
