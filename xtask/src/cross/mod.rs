//! `cargo xtask cross`: builds for other kinds of machines. `cargo xtask clients` runs what was
//! built.
//!
//! ```text
//! target/cross/aarch64         an installation for 64-bit Arm, glibc 2.17 or newer
//! target/cross/x86_64          the same for x86-64
//! target/cross/x86_64-musl     the command alone, linked statically
//! target/cross/aarch64-musl
//! ```

mod symbols;
pub(crate) mod targets;
pub(crate) mod tools;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::stage::{self, Dist, Profile};
use crate::util::{self, step};
use symbols::Facts;
pub(crate) use targets::{Parts, TARGETS, Target};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these: aarch64, x86_64, x86_64-musl, aarch64-musl.
    names: Vec<String>,
    /// Optimise: what installations use.
    #[arg(long)]
    release: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let find = |name: &String| {
        Target::named(name).with_context(|| {
            let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            format!("`{name}` is no kind of machines; they are {}", known.join(", "))
        })
    };
    let chosen: Vec<&Target> = match args.names.as_slice() {
        [] => TARGETS.iter().collect(),
        names => names.iter().map(find).collect::<Result<_>>()?,
    };
    for target in chosen {
        build(target, Profile::of(args.release))?;
    }
    same_exports()
}

/// Builds for a kind and lays it out.
pub(crate) fn build(target: &Target, profile: Profile) -> Result<Dist> {
    compile(target, profile)?;
    lay_out(target, profile, target.dist())
}

/// Builds for a kind.
pub(crate) fn compile(target: &Target, profile: Profile) -> Result<()> {
    compile_source(target, profile, &util::root(), &targets::folder())
}

/// The same of the source in a folder, below `built`.
pub(crate) fn compile_source(
    target: &Target,
    profile: Profile,
    source: &Path,
    built: &Path,
) -> Result<()> {
    tools::ensure(&[target])?;
    let (name, _) = profile.names();
    step(&format!("building for {} ({name})", target.name));
    let mut cargo = tools::build(target, source, built)?;
    let packages: &[&str] = match target.parts {
        Parts::All => &stage::PACKAGES,
        Parts::Command => &["outboard-cli"],
    };
    packages.iter().for_each(|package| _ = cargo.args(["--package", package]));
    // Tools of this machine do not know how to strip the files of others.
    for profile in ["RELEASE", "DEV"] {
        cargo.env(format!("CARGO_PROFILE_{profile}_STRIP"), "symbols");
    }
    util::run(cargo.args(["--profile", name]))
}

/// Lays out what was built for a kind; it needs nothing that machines of that kind may lack.
pub(crate) fn lay_out(target: &Target, profile: Profile, dir: PathBuf) -> Result<Dist> {
    let (_, folder) = profile.names();
    let built = targets::folder().join(target.triple).join(folder);
    if target.parts == Parts::Command {
        let dist = Dist { dir };
        stage::place(&built.join("outboard"), &dist.outboard())?;
        Facts::of(&dist.outboard())?.check_static().context("the command for musl")?;
        return Ok(dist);
    }
    let dist = Dist::lay_out(&built, dir)?;
    for program in stage::PROGRAMS {
        let facts = Facts::of(&dist.dir.join(program))?;
        facts.check_old().with_context(|| format!("{program} for {}", target.name))?;
    }
    Ok(dist)
}

/// What programs find in the libraries does not depend on the processor.
fn same_exports() -> Result<()> {
    let dist = |name| Target::named(name).map(Target::dist);
    let (Some(one), Some(other)) = (dist("aarch64"), dist("x86_64")) else { return Ok(()) };
    for library in stage::PROGRAMS.iter().filter(|file| file.contains("client/")) {
        let files = [one.join(library), other.join(library)];
        if !files.iter().all(|file| file.exists()) {
            return Ok(());
        }
        let [one, other] = [Facts::of(&files[0])?.exports, Facts::of(&files[1])?.exports];
        if one.is_empty() || one != other {
            let differ: Vec<_> = one.symmetric_difference(&other).cloned().collect();
            bail!("{library} offers other functions on aarch64: {}", differ.join(", "));
        }
        step(&format!("{library}: {} functions on both processors", one.len()));
    }
    Ok(())
}
