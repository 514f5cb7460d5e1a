//! How the devices are shared.

use outboard_server::identity::Limits;
use outboard_server::supervisor::Config;

use crate::images::bytes;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The most memory of each device that a session may have, in bytes; K, M, G and T stand for powers of 1024. Its programs see a device of that size.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    session_memory: Option<u64>,
}

impl Args {
    pub(crate) fn apply(&self, config: &mut Config) {
        config.sharing.limits = Limits { memory: self.session_memory, ..Limits::default() };
    }
}
