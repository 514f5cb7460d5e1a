//! `cargo xtask image`: builds the images of `deploy/container/Containerfile` with Debian's podman,
//! as the documentation says, and runs what is in them: without a registry, on a base that is made
//! of Debian's packages.
//!
//! podman runs in namespaces of its own ([`inside`]) and is only unpacked.

mod bare;
pub(crate) mod base;
pub(crate) mod blocks;
mod cases;
pub(crate) mod inside;
pub(crate) mod machine;
mod packages;
pub(crate) mod podman;
mod pool;
mod pool_page;
mod server;
mod services;
mod world;

use crate::apart::Apart;
use crate::stage::{Dist, PROGRAMS as MACHINE_CODE, Profile};
use crate::{kubernetes, programs, util};
use anyhow::Result;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Of what is laid out in target/dist already, such as by `cargo xtask stage --release`.
    #[arg(long)]
    staged: bool,
    /// Only the cases whose names contain this; the images are built all the same.
    #[arg(long)]
    only: Option<String>,
    /// Build only the images whose names contain one of these.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    images: Vec<String>,
}

/// The programs that use the server.
const PROGRAMS: [&str; 3] = ["attributes", "devices", "endless"];

/// Containers of a server listen on all addresses: the network is one of their own, too.
const APART: Apart =
    Apart { name: "image", what: "images and containers", limit: 400, more: &["--net", "--ipc"] };

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = cannot_run() {
        return util::print(&format!("skipped: {why}\n"));
    }
    if args.staged {
        Dist::laid_out()?;
    } else {
        programs::only(&[&PROGRAMS[..], &bare::PROGRAMS].concat())?;
        Dist::build(Profile::Dev)?;
    }
    strip()?;
    let only = args.only.iter().map(|only| format!("--only={only}"));
    let images = args.images.iter().map(|name| format!("--images={name}"));
    APART.all_pass(&only.chain(images).collect::<Vec<_>>())
}

/// Lays out the files of all images, with what is staged: each in a folder of its own of the one
/// that is returned, beside a file with its settings. Or says why not.
pub(crate) fn files() -> Result<std::result::Result<PathBuf, String>> {
    if let Some(why) = cannot_run() {
        return Ok(Err(why));
    }
    strip()?;
    APART.all_pass(&[format!("--only={}", cases::FILES)])?;
    Ok(Ok(files_folder()))
}

/// Runs programs in containers without flags, and says what came of it.
pub(crate) fn without_flags() -> Result<bare::Came> {
    if let Some(why) = cannot_run() {
        anyhow::bail!("{why}");
    }
    programs::only(&bare::PROGRAMS)?;
    strip()?;
    let images = ["client", "server"].map(|name| format!("--images={name}"));
    APART.all_pass(&[&images[..], &[format!("--only={}", cases::BARE)]].concat())?;
    bare::came()
}

fn files_folder() -> PathBuf {
    APART.folder().join("files")
}

/// Why it cannot run on this machine.
fn cannot_run() -> Option<String> {
    if let Some(why) = APART.cannot_enter().or_else(kubernetes::cannot_run) {
        return Some(why);
    }
    let error = packages::ensure().and_then(|()| base::ensure()).err()?;
    Some(format!("podman and a base for images cannot be had from Debian: {error:#}"))
}

/// What images get in place of the recipe's stage `dist`.
fn dist() -> PathBuf {
    APART.folder().join("dist")
}

/// Copies what is laid out, and strips it as the recipe does.
fn strip() -> Result<()> {
    let _ = fs::remove_dir_all(dist());
    util::run(Command::new("cp").arg("-a").arg(util::target_dir().join("dist")).arg(dist()))?;
    util::run(Command::new("strip").args(MACHINE_CODE.map(|name| dist().join(name))))
}
