//! How a server belongs to a pool.

use std::path::PathBuf;

use outboard_supervisor::Config;
use outboard_supervisor::pool;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The name by which leases of the pool mean this server. Without it the machine's name.
    #[arg(long, value_name = "NAME")]
    pool_name: Option<String>,
    /// A file with public keys of the pool's broker (k4.public.…), one a line. With it, clients
    /// need a lease that one of them has signed, or a token of this server's own.
    #[arg(long, value_name = "FILE")]
    pool_key: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn apply(self, config: &mut Config) {
        config.pool = self.settings();
    }

    /// Whether the server is one of a pool.
    pub(crate) fn is_set(&self) -> bool {
        self.settings().is_set()
    }

    fn settings(&self) -> pool::Config {
        pool::Config { name: self.pool_name.clone(), keys: self.pool_key.clone() }
    }
}
