//! `cargo xtask stage`: builds what is shipped and lays it out in `target/dist/` as it would be
//! installed.
//!
//! ```text
//! bin/outboard
//! lib/outboard/client/libcuda.so.1      what programs load: the client library
//! lib/outboard/client/libnvidia-ml.so.1 and NVML for the same devices
//! lib/outboard/client/libnccl.so.2      NCCL, which runs on the servers
//! lib/outboard/client/libcufile.so.0    cuFile, by which files get to the servers
//! lib/outboard/liboutboard-mpi.so       what `outboard run --mpi` preloads
//! lib/outboard/include                  headers for programs: add it with -I
//! lib/outboard/python                   modules that Python packages look for
//! lib/outboard/cpu/libcuda.so.1         the software device as a driver of its own, for --local-cpu
//! lib/outboard/cpu/libnvidia-ml.so.1    and NVML for it
//! lib/outboard/liboutboard-cpu.so       the same, for the server
//! lib/systemd, lib/sysusers.d           the services and their user
//! share                                 completions and manual pages
//! ```

use crate::lints;
use crate::util::{self, root, step};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Optimise: what installations use.
    #[arg(long)]
    release: bool,
}

/// What is made of machine code.
pub(crate) const PROGRAMS: [&str; 7] = [
    "bin/outboard",
    "lib/outboard/client/libcuda.so.1",
    "lib/outboard/client/libnvidia-ml.so.1",
    "lib/outboard/client/libnccl.so.2",
    "lib/outboard/client/libcufile.so.0",
    "lib/outboard/liboutboard-cpu.so",
    "lib/outboard/liboutboard-mpi.so",
];

/// The packages of these.
pub(crate) const PACKAGES: [&str; 7] = [
    "outboard-cli",
    "outboard-libcuda",
    "outboard-libcufile",
    "outboard-libnccl",
    "outboard-libnvml",
    "outboard-mpi",
    "outboard-cpu",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let dist = Dist::build(Profile::of(args.release))?;
    dist.manual(&dist.outboard())?;
    step(&format!("laid out in {}", dist.dir.display()));
    Ok(())
}

/// Where each shell looks for completions, below `share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/outboard"),
    ("zsh", "zsh/site-functions/_outboard"),
    ("fish", "fish/vendor_completions.d/outboard.fish"),
];

/// Packages of the folder `python`.
pub(crate) const PYTHON: [&str; 2] = ["outboard", "jax_plugins/outboard"];

/// What programs include that move files to devices themselves.
const IO_HEADER: &str = "include/outboard/io.h";

/// How something is built.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    /// Quickly, with checks.
    Dev,
    /// The same for a run of all tests. The whole workspace is built with what tests need, as
    /// `cargo test` does: of fewer packages the dependencies would have other features, and be
    /// compiled twice, with all that is above them.
    Tests,
    /// Optimised a little, for a first look.
    Demo,
    /// Optimised across crates.
    Release,
}

impl Profile {
    /// An optimised one or not.
    pub(crate) fn of(release: bool) -> Profile {
        if release { Profile::Release } else { Profile::Dev }
    }

    /// What cargo calls it, and the folder in which its output is.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Profile::Dev | Profile::Tests => ("dev", "debug"),
            Profile::Demo => ("demo", "demo"),
            Profile::Release => ("release", "release"),
        }
    }
}

/// The laid-out files.
pub(crate) struct Dist {
    pub(crate) dir: PathBuf,
}

impl Dist {
    /// Builds and lays out.
    pub(crate) fn build(profile: Profile) -> Result<Self> {
        let (name, folder) = profile.names();
        step(&format!("building the command, the client library and the software device ({name})"));
        let mut cargo;
        if let Profile::Tests = profile {
            cargo = lints::cargo();
            cargo.args(["build", "--workspace", "--lib", "--bins", "--examples"]);
        } else {
            cargo = util::cargo();
            cargo.current_dir(root()).arg("build");
            PACKAGES.iter().for_each(|package| _ = cargo.args(["--package", package]));
        }
        util::run(cargo.args(["--profile", name]))?;

        Self::lay_out(&util::target_dir().join(folder), util::target_dir().join("dist"))
    }

    /// Lays out what was built into a folder.
    pub(crate) fn lay_out(built: &Path, dir: PathBuf) -> Result<Self> {
        let dist = Self { dir };
        let lib = dist.dir.join("lib/outboard");
        place(&built.join("outboard"), &dist.outboard())?;
        place(&built.join("libcuda.so"), &lib.join("client/libcuda.so.1"))?;
        place(&built.join("libnvidia_ml.so"), &lib.join("client/libnvidia-ml.so.1"))?;
        place(&built.join("libnccl.so"), &lib.join("client/libnccl.so.2"))?;
        place(&built.join("libcufile.so"), &lib.join("client/libcufile.so.0"))?;
        place(&built.join("liboutboard_cpu.so"), &lib.join("liboutboard-cpu.so"))?;
        place(&built.join("liboutboard_mpi.so"), &lib.join("liboutboard-mpi.so"))?;
        place(&root().join(IO_HEADER), &lib.join(IO_HEADER))?;
        for package in PYTHON {
            modules(&root().join("python").join(package), &lib.join("python").join(package))?;
        }
        link("libcuda.so.1", &lib.join("client/libcuda.so"))?;
        link("libnvidia-ml.so.1", &lib.join("client/libnvidia-ml.so"))?;
        link("libnccl.so.2", &lib.join("client/libnccl.so"))?;
        link("libcufile.so.0", &lib.join("client/libcufile.so"))?;
        fs::create_dir_all(lib.join("cpu")).context("cannot create a folder of an installation")?;
        link("../liboutboard-cpu.so", &lib.join("cpu/libcuda.so.1"))?;
        link("libcuda.so.1", &lib.join("cpu/libcuda.so"))?;
        link("../client/libnvidia-ml.so.1", &lib.join("cpu/libnvidia-ml.so.1"))?;
        link("libnvidia-ml.so.1", &lib.join("cpu/libnvidia-ml.so"))?;
        Ok(dist)
    }

    /// What was laid out before.
    pub(crate) fn laid_out() -> Result<Self> {
        let dist = Self { dir: util::target_dir().join("dist") };
        if !dist.outboard().exists() {
            bail!("nothing is laid out in {}; `cargo xtask stage` does it", dist.dir.display());
        }
        Ok(dist)
    }

    /// Writes what shells, readers of manuals and service managers look for, as a command says it
    /// that runs on this machine.
    pub(crate) fn manual(&self, outboard: &Path) -> Result<()> {
        let share = self.dir.join("share");
        for (shell, file) in COMPLETIONS {
            let text = util::said(Command::new(outboard).args(["completions", shell]))?;
            let file = share.join(file);
            fs::create_dir_all(file.parent().unwrap_or(&share))?;
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        util::run(Command::new(outboard).arg("man").arg(share.join("man/man1")))?;
        let systemd = root().join("deploy/systemd");
        for unit in ["outboard.service", "outboard-broker.service"] {
            place(&systemd.join(unit), &self.dir.join("lib/systemd/system").join(unit))?;
        }
        place(
            &systemd.join("outboard.sysusers.conf"),
            &self.dir.join("lib/sysusers.d/outboard.conf"),
        )
    }

    /// The command `outboard`.
    pub(crate) fn outboard(&self) -> PathBuf {
        self.dir.join("bin/outboard")
    }
}

/// Copies a file under another name first, so that processes that have the old one mapped keep it.
pub(crate) fn place(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        bail!("{} has not been built", from.display());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let temporary = to.with_extension(format!("new-{}", std::process::id()));
    fs::copy(from, &temporary).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::rename(&temporary, to).with_context(|| format!("cannot put {} in place", to.display()))
}

/// Lays out the modules of a Python package, and no others: one that was renamed would still be
/// found.
pub(crate) fn modules(from: &Path, to: &Path) -> Result<()> {
    let files = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        Ok(paths.into_iter().filter(|path| path.is_file()).collect())
    };
    for file in files(from)? {
        place(&file, &to.join(file.file_name().unwrap_or_default()))?;
    }
    for old in files(to)? {
        if !from.join(old.file_name().unwrap_or_default()).exists() {
            fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    Ok(())
}

fn link(target: &str, at: &Path) -> Result<()> {
    if fs::read_link(at).is_ok_and(|old| old == Path::new(target)) {
        return Ok(());
    }
    let _ = fs::remove_file(at);
    symlink(target, at).with_context(|| format!("cannot link {}", at.display()))
}
