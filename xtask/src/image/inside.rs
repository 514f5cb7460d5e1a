//! What runs in the namespaces: lays out podman, builds the images, runs the cases.

use super::world::World;
use super::{APART, cases, podman};
use crate::apart;
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    only: Option<String>,
    #[arg(long)]
    images: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    podman::lay_out()?;
    let mut world = World::build(&args.images)?;
    apart::run(&APART, cases::ALL, args.only.as_deref(), |run| run(&mut world))
}
