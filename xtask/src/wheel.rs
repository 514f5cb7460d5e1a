//! `cargo xtask wheel`: a Python wheel with the command, the client's libraries and the software
//! device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::server::Server;
use crate::stage::{Dist, Profile};
use crate::util::{self, root, step};
use crate::{cross, programs, stage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do not optimise: to see whether packaging works.
    #[arg(long)]
    debug: bool,
    /// For which machines: this one and those with its C library or a newer one; or, for all with
    /// glibc 2.17 or newer, `x86_64` or `aarch64`.
    #[arg(long = "for", value_name = "MACHINES", value_parser = ["x86_64", "aarch64"])]
    machines: Option<String>,
    /// Install it into a fresh environment and run programs with it.
    #[arg(long, conflicts_with = "machines")]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let profile = Profile::of(!args.debug);
    let Some(name) = &args.machines else { return make(profile, args.check) };
    let target = cross::Target::named(name).context("a kind of machines")?;
    let wheel = pack(&cross::build(target, profile)?.dir, &folder())?;
    said(&wheel)
}

fn make(profile: Profile, checked: bool) -> Result<()> {
    let dist = Dist::build(profile)?;
    let wheel = build(&dist)?;
    said(&wheel)?;
    if checked { check(&dist, &wheel) } else { Ok(()) }
}

fn said(wheel: &Path) -> Result<()> {
    step(&format!("{} ({} kB)", wheel.display(), fs::metadata(wheel)?.len() / 1000));
    Ok(())
}

/// Makes one and uses it: a step of `cargo xtask test`.
pub(crate) fn attempt() -> Result<()> {
    make(Profile::Tests, true)
}

/// Strips a copy of the installation and packs it.
fn build(dist: &Dist) -> Result<PathBuf> {
    let folder = folder();
    let stripped = folder.join("dist");
    let _ = fs::remove_dir_all(&stripped);
    fs::create_dir_all(&folder)?;
    util::run(Command::new("cp").arg("-a").arg(&dist.dir).arg(&stripped))?;
    for program in stage::PROGRAMS {
        util::run(Command::new("strip").arg(stripped.join(program)))?;
    }
    let wheel = pack(&stripped, &folder)?;
    fs::remove_dir_all(&stripped)?;
    Ok(wheel)
}

fn folder() -> PathBuf {
    util::target_dir().join("wheel")
}

/// Packs an installation; where the wheel is.
pub(crate) fn pack(dist: &Path, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let mut python = Command::new("python3");
    python.arg(root().join("deploy/python/wheel.py"));
    python.args([dist, Path::new(env!("CARGO_PKG_VERSION")), &root(), folder]);
    Ok(PathBuf::from(util::said(&mut python)?.trim()))
}

/// Installs the wheel and uses nothing but what it brought.
fn check(dist: &Dist, wheel: &Path) -> Result<()> {
    programs::ensure()?;
    let venv = util::target_dir().join("wheel/venv");
    let _ = fs::remove_dir_all(&venv);
    util::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let bin = venv.join("bin");
    let pip = || {
        let mut pip = Command::new(bin.join("python"));
        pip.args(["-m", "pip", "--disable-pip-version-check", "--quiet"]);
        pip
    };
    util::run(pip().args(["install", "--no-index"]).arg(wheel))?;
    let said = |command: &mut Command| -> Result<String> {
        let output = command.env_remove("OUTBOARD_LIB").env("OUTBOARD_CONFIG", "none").output()?;
        if !output.status.success() {
            bail!("`{}` failed: {}", util::show(command), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let outboard = || Command::new(bin.join("outboard"));
    let program = util::target_dir().join("programs/vector_add");
    let alone = said(outboard().args(["run", "--local-cpu", "--"]).arg(&program))?;
    let server = Server::local(dist, Some("cpu"))?;
    let remote = said(outboard().args(["run", "--server", &server.address, "--"]).arg(&program))?;
    if alone != remote || !alone.starts_with("vector_add: ") {
        bail!("the program said `{alone}` alone and `{remote}` through a server");
    }
    let module = "import importlib.util as u; print(u.find_spec('jax_plugins.outboard').origin)";
    let found = said(Command::new(bin.join("python")).args(["-c", module]))?;
    if !found.contains("site-packages/jax_plugins/outboard") {
        bail!("the module for JAX is at {found}");
    }
    // With nothing of the wheel in PATH.
    let module = format!(
        "import outboard; outboard.connect('{}'); print(outboard.devices()[0]['name'])",
        server.address
    );
    let found = said(Command::new(bin.join("python")).args(["-c", &module]))?;
    if !found.starts_with("Outboard CPU") {
        bail!("the module outboard finds {found}");
    }
    said(outboard().args(["doctor", "--server", &server.address]))?;
    util::run(pip().args(["uninstall", "--yes", "outboard"]))?;
    for left in ["bin/outboard", "lib/outboard/client/libcuda.so.1"] {
        if venv.join(left).exists() {
            bail!("{left} is left behind: it is not in RECORD");
        }
    }
    step("the wheel was installed, used and removed");
    Ok(())
}
