//! What runs in the namespaces.

use std::path::PathBuf;

use anyhow::Result;

use super::{APART, cases};
use crate::apart;
use crate::image::podman;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of a release.
    #[arg(long)]
    release: PathBuf,
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    podman::lay_out()?;
    let mut world = cases::World::of(args.release.clone())?;
    apart::run(&APART, cases::ALL, args.only.as_deref(), |run| run(&mut world))
}
