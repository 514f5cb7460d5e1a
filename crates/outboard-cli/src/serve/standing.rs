//! How a server ends.

use std::time::Duration;

use outboard_server::supervisor::Config;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// After SIGTERM or SIGINT, how many seconds sessions may go on before they are ended. There are no new ones meanwhile; a second signal ends all
    /// at once.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = crate::serve::seconds())]
    drain: u64,
}

impl Args {
    pub(crate) fn apply(&self, config: &mut Config) {
        config.standing.drain = Duration::from_secs(self.drain);
    }
}
