//! `cargo xtask release`: makes all that is published of a version, from a commit, so that another
//! machine makes the same bytes of it; `--check` installs, uses and removes each on systems that
//! have nothing of it.
//!
//! ```text
//! target/release-VERSION/
//!     outboard-VERSION-x86_64-linux.tar.xz        an installation for a prefix, such as /usr/local
//!     outboard-VERSION-x86_64-linux-musl.tar.xz   the command alone, linked statically
//!     outboard_VERSION-1_amd64.deb                for Debian and Ubuntu
//!     outboard-VERSION-1.x86_64.rpm               for Fedora, Red Hat and others
//!     outboard-VERSION-py3-none-manylinux….whl    for pip
//!     …the same for aarch64
//!     outboard-VERSION.tgz                        the Helm chart
//!     outboard-VERSION.cdx.json                   of which crates the programs consist
//!     outboard-VERSION.md                         what the changelog says
//!     SHA256SUMS                                  what a person signs
//! ```

mod archive;
mod bill;
mod chart;
pub(crate) mod check;
mod packages;
mod prefix;
mod source;
mod sums;
mod third_party;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cross::{self, Parts, TARGETS, Target};
use crate::stage::Profile;
use crate::util::{step, target_dir};
use crate::wheel;
use source::Source;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only for these kinds of machines: aarch64, x86_64, x86_64-musl, aarch64-musl. The files of
    /// others in the folder are removed.
    #[arg(long = "for", value_name = "KIND", value_delimiter = ',',
        value_parser = ["aarch64", "x86_64", "x86_64-musl", "aarch64-musl"])]
    kinds: Vec<String>,
    /// Do not optimise: to see whether packaging works.
    #[arg(long)]
    debug: bool,
    /// Build no machine code: pack what was built before.
    #[arg(long)]
    built: bool,
    /// Also of what is no release: with changes, without a tag or a section of the changelog.
    #[arg(long)]
    anyway: bool,
    /// Pack everything a second time, and fail unless the bytes are the same.
    #[arg(long)]
    twice: bool,
    /// Install, use and remove each on a system that has nothing of it.
    #[arg(long)]
    check: bool,
    /// Make nothing: check what was made before.
    #[arg(long, requires = "check")]
    made: bool,
    /// Of the checks, only those whose names contain this.
    #[arg(long, requires = "check")]
    only: Option<String>,
}

/// This machine's own kind.
const OWN: &str = std::env::consts::ARCH;

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = target_dir().join(format!("release-{}", env!("CARGO_PKG_VERSION")));
    if !args.made {
        attempt(args, &folder)?;
    }
    if args.check { check::run(&folder, args.only.as_deref()) } else { Ok(()) }
}

/// Makes a release in a folder.
fn attempt(args: &Args, folder: &Path) -> Result<()> {
    let source = Source::read(args.anyway)?;
    let wanted =
        |target: &&Target| args.kinds.is_empty() || args.kinds.iter().any(|it| it == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    let profile = Profile::of(!args.debug);
    if !args.built {
        // The own one says what manuals contain.
        let own = TARGETS.iter().filter(|target| target.name == OWN);
        let more = own.filter(|own| !targets.iter().any(|target| target.name == own.name));
        let all = targets.iter().copied().chain(more);
        all.into_iter().try_for_each(|target| cross::compile(target, profile))?;
    }
    // Beside it; the end of its name, which is a version, is no extension.
    let beside = |what: &str| PathBuf::from(format!("{}-{what}", folder.display()));
    let work = beside("work");
    make(&targets, profile, &source, &work, folder)?;
    if args.twice {
        let (again, work) = (beside("again"), beside("work-again"));
        make(&targets, profile, &source, &work, &again)?;
        sums::compare(folder, &again)?;
        remove(&again)?;
        step("packed twice: the same bytes");
    }
    step(&format!("made {}", folder.display()));
    Ok(())
}

/// Packs what was built into a folder. `work` has what is in between until it is done.
fn make(
    targets: &[&Target],
    profile: Profile,
    source: &Source,
    work: &Path,
    to: &Path,
) -> Result<()> {
    for folder in [work, to] {
        remove(folder)?;
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let own = Target::named(OWN).context("nothing is built for this machine")?;
    let own = cross::lay_out(own, profile, work.join("own"))?.outboard();
    let third_party = third_party::make(&bill::make(work, to, source)?, work)?;
    for target in targets {
        step(&format!("packing for {}", target.name));
        let (processor, c_library) = target.name.split_once('-').unwrap_or((target.name, ""));
        let dash = if c_library.is_empty() { "" } else { "-" };
        let name = format!("outboard-{}-{processor}-linux{dash}{c_library}", source.version);
        let prefix = prefix::lay_out(target, profile, (&own, &third_party), work.join(&name))?;
        archive::pack(&prefix, &to.join(format!("{name}.tar.xz")), source)?;
        if target.parts == Parts::All {
            packages::make(&prefix, processor, work, to, source)?;
            wheel::pack(&prefix, to)?;
        }
    }
    chart::make(work, to, source)?;
    fs::write(to.join(format!("outboard-{}.md", source.version)), &source.notes)
        .context("cannot write the notes")?;
    sums::write(to)?;
    remove(work)
}

/// Removes a folder if it is there.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
