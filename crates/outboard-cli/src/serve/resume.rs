//! How long sessions outlive their connections.

use std::time::Duration;

use outboard_supervisor::Config;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// How many seconds a session is kept, with its memory, whose client is not heard of any more;
    /// the client goes on when it is back in time. 0 ends a session with its connection.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400))]
    grace: u64,
    /// The same for a connection that was closed, as it is when the client's program was killed,
    /// and not when it ended by itself.
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400))]
    closed_grace: u64,
    /// After how many seconds a client that does not answer is taken for gone.
    #[arg(long, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=3600))]
    keepalive: u64,
}

impl Args {
    pub(crate) fn apply(&self, config: &mut Config) {
        config.resume.grace = Duration::from_secs(self.grace);
        config.resume.closed_grace = Duration::from_secs(self.closed_grace);
        config.resume.keepalive = Duration::from_secs(self.keepalive);
    }
}
