//! Flags of `outboard serve` for those who look at it.

use std::path::PathBuf;

use outboard_server::supervisor::{Config, Socket};

#[derive(clap::Args)]
pub(crate) struct ObserveArgs {
    /// The Unix socket for `outboard sessions`, `top`, `kill` and `trace`, which only the server's own user and root may use; `none` for none.
    /// Without it PORT.admin.sock beside the socket for clients.
    #[arg(long, value_name = "PATH|none")]
    admin: Option<PathBuf>,
}

impl ObserveArgs {
    pub(crate) fn apply(self, config: &mut Config) {
        config.admin = match self.admin {
            None => Socket::Usual,
            Some(path) if path.as_os_str() == "none" => Socket::Off,
            Some(path) => Socket::At(path),
        };
    }
}
