//! `cargo xtask mixed`: an earlier release and this source, one as the client and the other as the
//! server. Each test program must do what it does with this source alone.

mod earlier;
mod pairs;
mod ways;

use anyhow::{Context, Result};

use crate::releases::Releases;
use crate::stage::Dist;
use crate::util::{self, root};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The commit of the earlier release; without it the last one in api/releases.toml.
    #[arg(long, value_name = "REV")]
    with: Option<String>,
    /// Only this build: what is in target/dist, and the test programs, are as they are.
    #[arg(long)]
    staged: bool,
    /// Only the runs whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let releases = Releases::read(&root())?;
    let release = releases.last().context("api/releases.toml names no release")?;
    let commit = args.with.as_deref().unwrap_or(&release.commit);
    if !args.staged {
        crate::programs::ensure()?;
        Dist::build(crate::stage::Profile::Dev)?;
    }
    let new = Dist::laid_out()?;
    let old = earlier::build(commit)?;
    let runs = pairs::all(&old, &new, args.only.as_deref())?;
    util::print(&format!("{runs} with {commit}\n"))
}
