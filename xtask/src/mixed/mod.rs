//! `cargo xtask mixed`: an earlier release and this source, one as the client and the other as the
//! server. Each test program must do what it does with this source alone.

mod earlier;
mod pairs;
mod ways;

use anyhow::{Context, Result};
pub(crate) use earlier::resolve;
pub(crate) use pairs::PROGRAMS;
use pairs::Ran;

use crate::cross::Target;
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
    let commit = match &args.with {
        Some(commit) => commit.clone(),
        None => last()?,
    };
    if !args.staged {
        crate::programs::ensure()?;
        Dist::build(crate::stage::Profile::Dev)?;
    }
    let new = Dist::laid_out()?;
    let old = earlier::build(&commit)?;
    let Ran { programs, upgrades } = pairs::all(&old, &new, args.only.as_deref())?;
    util::print(&format!(
        "{programs} runs of test programs and {upgrades} upgrades went well with {commit}\n"
    ))
}

/// The commit of the last release.
fn last() -> Result<String> {
    let releases = Releases::read(&root())?;
    let release = releases.last().context("api/releases.toml names no release")?;
    Ok(release.commit.clone())
}

/// Which of a client and a server is the last release, if the other one is of this source.
#[derive(Clone, Copy)]
pub(crate) enum Earlier {
    Client,
    Server,
}

impl Earlier {
    /// Runs the test programs by all ways to the server; how often they did what they should.
    pub(crate) fn run(self, old: &Dist, new: &Dist) -> Result<usize> {
        let only = match self {
            Earlier::Client => pairs::OLD_CLIENT,
            Earlier::Server => pairs::OLD_SERVER,
        };
        Ok(pairs::all(old, new, Some(only))?.programs)
    }
}

/// The last release, built.
pub(crate) fn release() -> Result<Dist> {
    earlier::build(&last()?)
}

/// The same for another kind of machines.
pub(crate) fn release_for(kind: &Target) -> Result<Dist> {
    earlier::build_for(kind, &last()?)
}
