//! The package of Debian's kind and the wheel for aarch64, on a Debian 13 whose programs QEMU runs:
//! a client, which uses an x86-64 server of the release. Nothing is a service there; the files of
//! both processors' packages are the same but for machine code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::files::{Files, nothing_left};
use super::{APART, PROGRAM, SYSTEM, file, works};
use crate::image::base;
use crate::machines::{Emulation, Machine, PROGRAMS, arm_programs};
use crate::server::Server;
use crate::stage::Dist;
use crate::util::{self, step};

/// What Debian has besides its essential packages: what installs.
const PACKAGES: &str = "passwd,python3-venv";
/// Where the release is seen there.
const RELEASE: &str = "/release";

/// In the names of cases.
pub(super) const NAME: &str = "what is for aarch64, emulated";

/// Why this machine cannot, or the release has nothing of it.
pub(super) fn cannot_run(release: &Path) -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("aarch64 is emulated on x86-64 only".into());
    }
    file(release, "aarch64", "outboard_", ".deb").err().map(|error| error.to_string())
}

/// Checks both, each on a system of its own.
pub(super) fn run(release: &Path) -> Result<()> {
    let dist = unpacked(release)?;
    let server = Server::local(&dist, Some("cpu"))?;
    let (programs, _) = arm_programs(Some(&[PROGRAM]))?;
    for (what, check) in [("the package for arm64", deb as Check), ("the wheel for aarch64", wheel)]
    {
        step(&format!("{what}, emulated"));
        let machine = system()?.with(release, RELEASE).with(&programs, PROGRAMS);
        // It makes the folders over which others are mounted, too.
        machine.check()?;
        check(&machine, release, &server.address).context(what)?;
    }
    step("both were installed, used and removed");
    Ok(())
}

type Check = fn(&Machine, release: &Path, server: &str) -> Result<()>;

/// The archive for this machine, unpacked.
fn unpacked(release: &Path) -> Result<Dist> {
    let folder = fresh("own")?;
    let name = file(release, std::env::consts::ARCH, "outboard-", "-linux.tar.xz")?;
    util::run(Command::new("tar").arg("-C").arg(&folder).arg("-xf").arg(release.join(&name)))?;
    Ok(Dist { dir: folder.join(name.trim_end_matches(".tar.xz")) })
}

/// A system that has nothing of the project's.
fn system() -> Result<Machine> {
    let emulation = Emulation::start()?;
    let archive = APART.folder().join(format!("{SYSTEM}-arm64.tar"));
    base::make_emulated(&emulation, &archive, SYSTEM, &[format!("--include={PACKAGES}")])?;
    let root = fresh("arm64")?;
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--exclude=./dev/*", "-C"]).arg(&root).arg("-xpf").arg(archive);
    util::run(&mut tar)?;
    Machine::emulated(root, emulation)
}

fn fresh(name: &str) -> Result<PathBuf> {
    let folder = APART.folder().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn deb(machine: &Machine, release: &Path, server: &str) -> Result<()> {
    let before = Files::below(machine.root())?;
    let package = file(release, "aarch64", "outboard_", ".deb")?;
    let install = format!("dpkg --install {RELEASE}/{package}");
    machine.says(&install)?;
    ensure!(machine.says("uname -m")?.trim() == "aarch64", "the system is not emulated");
    machine.says("test -s /usr/share/man/man1/outboard.1.gz && outboard --version")?;
    works(|line| machine.says(line), "outboard", &format!("--server {server}"))?;
    machine.says(&install)?;
    works(|line| machine.says(line), "outboard", &format!("--server {server}"))?;
    machine.says("dpkg --remove outboard && dpkg --purge outboard")?;
    nothing_left(&Files::below(machine.root())?, &before, &[])
}

fn wheel(machine: &Machine, release: &Path, server: &str) -> Result<()> {
    machine.says("useradd --home-dir /srv/person --create-home person")?;
    let person = |line: &str| machine.says(&format!("cd /srv/person; runuser -u person -- {line}"));
    person("python3 -m venv venv")?;
    let before = Files::below(machine.root())?;
    let pip = "venv/bin/python -m pip --no-cache-dir --disable-pip-version-check --quiet";
    let wheel = file(release, "aarch64", "outboard-", ".whl")?;
    person(&format!("{pip} install --no-index --no-compile {RELEASE}/{wheel}"))?;
    for flags in [format!("--server {server}"), "--local-cpu".to_owned()] {
        works(
            |line| machine.says(line),
            "runuser -u person -- /srv/person/venv/bin/outboard",
            &flags,
        )?;
    }
    let module =
        format!("import outboard; outboard.connect(\"{server}\"); print(outboard.devices())");
    let said = person(&format!("venv/bin/python -c '{module}'"))?;
    ensure!(said.contains("Outboard CPU"), "the module finds {said}");
    person(&format!("{pip} uninstall --yes outboard"))?;
    let python = machine.says("ls -d /srv/person/venv/lib/*/site-packages/jax_plugins")?;
    machine.says(&format!("rmdir {}", python.trim()))?;
    nothing_left(&Files::below(machine.root())?, &before, &[])
}
