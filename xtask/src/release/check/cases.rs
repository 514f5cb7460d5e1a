//! The cases: each installs one file of a release, uses it, removes it, and looks at what is left.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::files::{self, Files};
use super::{file, system};
use crate::apart::{Case, within};
use crate::image::blocks::word;
use crate::image::machine::Machine;
use crate::image::podman::{self, ADDRESS};
use crate::machines::PROGRAMS;
use crate::programs;

pub(super) struct World {
    /// The release.
    folder: PathBuf,
    /// The image of a system.
    image: String,
}

const fn case(name: &'static str, run: fn(&mut World) -> Result<()>) -> Case<World> {
    Case { name, run }
}

pub(super) const ALL: &[Case<World>] = &[
    case("the archive", archive),
    case("the package of Debian's kind", deb),
    case("the package of Red Hat's kind", rpm),
    case("the wheel", wheel),
    case("the command that needs no C library", command),
];

const UNINSTALLING: &str = "docs/uninstall.md";
/// A server is up in this time.
const SOON: Duration = Duration::from_secs(40);
/// A server on this machine alone.
const LOCAL: &str = "mkdir -p /etc/outboard
printf '[serve]\\ndriver = \"cpu\"\\nlisten = \"127.0.0.1\"\\n' > /etc/outboard/outboard.toml
systemctl enable --now outboard";

impl World {
    pub(super) fn of(folder: PathBuf) -> Result<World> {
        Ok(World { folder, image: podman::import(&system(), "system")? })
    }

    /// A system without anything of the project's that sees the release and a CUDA program.
    fn machine(&self) -> Result<Machine> {
        let release = format!("{}:/release", self.folder.display());
        let programs = format!("{}:{PROGRAMS}", programs::dir().display());
        Machine::start("system", &self.image, "/release", &[&release, &programs])
    }

    /// The name of a file of the release for this machine.
    fn file(&self, begin: &str, end: &str) -> Result<String> {
        file(&self.folder, std::env::consts::ARCH, begin, end)
    }
}

/// Runs the CUDA program by a command and its flags.
fn works(machine: &Machine, outboard: &str, flags: &str) -> Result<()> {
    super::works(|line| machine.says(line), outboard, flags)
}

/// Fails unless a machine's files are those of before, but for what is `named`.
fn nothing_left(machine: &Machine, before: &Files, named: &[&str]) -> Result<()> {
    files::nothing_left(&Files::of(|line| machine.says(line))?, before, named)
}

fn archive(world: &mut World) -> Result<()> {
    let machine = world.machine()?;
    let before = Files::of(|line| machine.says(line))?;
    machine.follow("docs/install.md", "### From an archive", 1)?;
    let said = machine.follow("docs/service.md", "# The server as a service", 1)?;
    machine.is_active("outboard")?;
    machine.says(&format!("printf %s {} > /tmp/token", word(&said, "obt_")?))?;
    let fingerprint = word(&said, "sha256:")?;
    let flags =
        format!("--server {ADDRESS} --tls-fingerprint {fingerprint} --token-file /tmp/token");
    works(&machine, "outboard", &flags)?;
    machine.follow(UNINSTALLING, "## A server", 1)?;
    machine.follow(UNINSTALLING, "## The installation", 1)?;
    machine.follow(UNINSTALLING, "## A server", 2)?;
    machine.says("rm /tmp/token")?;
    // Folders that others use, too.
    let stay = machine.says("find /usr/local/lib /usr/local/share -type d")?;
    ensure!(!stay.contains("outboard"), "{stay}");
    nothing_left(&machine, &before, &stay.lines().collect::<Vec<_>>())
}

fn deb(world: &mut World) -> Result<()> {
    let machine = world.machine()?;
    let before = Files::of(|line| machine.says(line))?;
    let install = format!("dpkg --install {}", world.file("outboard_", ".deb")?);
    packaged(&machine, &install, &install)?;
    machine.says("dpkg --remove outboard")?;
    nothing_left(&machine, &before, &STATE)?;
    machine.says("test -e /etc/outboard/outboard.toml && dpkg --purge outboard")?;
    nothing_left(&machine, &before, &[])
}

/// What a server and its administrator have written, which only `purge` removes.
const STATE: [&str; 7] = [
    "/etc/group",
    "/etc/gshadow",
    "/etc/outboard/",
    "/etc/passwd",
    "/etc/shadow",
    "/var/cache/outboard/",
    "/var/lib/outboard/",
];

/// Debian's files have what packages of Red Hat's kind need, and rpm has no record of it: a package
/// without files says so.
const SYSTEM_OF_RPM: &str = "cd /tmp
cat > system.spec <<'END'
Name: system
Version: 1
Release: 1
Summary: What the files of Debian's packages offer
License: none
BuildArch: noarch
Provides: libc.so.6(GLIBC_2.17)(64bit)
%description
%files
END
rpmbuild -bb --quiet --define '_topdir /tmp/rpm' system.spec
rpm --install rpm/RPMS/noarch/system-1-1.noarch.rpm
rm -r rpm system.spec";

fn rpm(world: &mut World) -> Result<()> {
    let machine = world.machine()?;
    machine.says(SYSTEM_OF_RPM)?;
    let before = Files::of(|line| machine.says(line))?;
    let package = world.file("outboard-", ".rpm")?;
    let install = format!("dnf --assumeyes install ./{package}");
    packaged(&machine, &install, &format!("rpm --upgrade --replacepkgs {package}"))?;
    machine.says("dnf --assumeyes remove outboard")?;
    nothing_left(&machine, &before, &[&STATE[..], &FILESYSTEM].concat())?;
    machine.follow(UNINSTALLING, "## A server", 2)?;
    nothing_left(&machine, &before, &FILESYSTEM)
}

/// Folders of the package `filesystem`, which all systems of Red Hat's kind have.
const FILESYSTEM: [&str; 2] =
    ["/usr/share/fish/vendor_completions.d", "/usr/share/zsh/site-functions"];

/// Installs a package by a line, uses it as a service, and installs it again by another line.
fn packaged(machine: &Machine, install: &str, again: &str) -> Result<()> {
    machine.says(install)?;
    let units = "systemctl is-enabled outboard outboard-broker || true";
    let said = machine.says(units)?;
    ensure!(said.trim() == "disabled\ndisabled", "the services are {said}");
    machine.says("test -s /usr/share/man/man1/outboard.1.gz && outboard --version")?;
    machine.says(LOCAL)?;
    machine.is_active("outboard")?;
    works(machine, "outboard", "--server 127.0.0.1")?;
    machine.says(again)?;
    machine.is_active("outboard")?;
    let journal = machine.says("journalctl --unit=outboard --no-pager --output=cat")?;
    ensure!(journal.contains("upgrades=1"), "the server has not become the new one: {journal}");
    works(machine, "outboard", "--server 127.0.0.1")
}

fn wheel(world: &mut World) -> Result<()> {
    let machine = world.machine()?;
    machine.says("useradd --home-dir /srv/person --create-home person")?;
    let person = |line: &str| machine.says(&format!("cd /srv/person; runuser -u person -- {line}"));
    person("python3 -m venv venv")?;
    let before = Files::of(|line| machine.says(line))?;
    let pip = "venv/bin/python -m pip --no-cache-dir --disable-pip-version-check --quiet";
    let wheel = world.file("outboard-", ".whl")?;
    person(&format!("{pip} install --no-index /release/{wheel}"))?;
    machine.says(
        "systemd-run --quiet --unit=wheel --uid=person --setenv=HOME=/srv/person \
        /srv/person/venv/bin/outboard serve --driver cpu",
    )?;
    let outboard = "runuser -u person -- /srv/person/venv/bin/outboard";
    up(&machine, outboard)?;
    works(&machine, outboard, "--server 127.0.0.1")?;
    works(&machine, outboard, "--local-cpu")?;
    machine.says("systemctl stop wheel")?;
    person(&format!("{pip} uninstall --yes outboard"))?;
    machine.says("rm -rf /srv/person/.cache/outboard /srv/person/.local/state/outboard")?;
    let python = machine.says("ls -d /srv/person/venv/lib/*/site-packages/jax_plugins")?;
    machine.says(&format!("rmdir {}", python.trim()))?;
    nothing_left(&machine, &before, &["/srv/person/.cache", "/srv/person/.nv/"])
}

/// Waits for a server that was started by hand.
fn up(machine: &Machine, outboard: &str) -> Result<()> {
    let ask = format!("{outboard} devices --server 127.0.0.1");
    within(SOON, "the server can be asked", || Ok(machine.says(&ask).is_ok()))
}

fn command(world: &mut World) -> Result<()> {
    let machine = world.machine()?;
    let whole = world.file("outboard-", "-linux.tar.xz")?;
    let outboard = format!("/opt/{}/bin/outboard", whole.trim_end_matches(".tar.xz"));
    machine.says(&format!(
        "tar -C /opt -xf {whole}
        systemd-run --quiet {outboard} serve --driver cpu --listen 127.0.0.1"
    ))?;
    up(&machine, &outboard)?;
    let name = world.file("outboard-", "-linux-musl.tar.xz")?;
    let image = podman::import(&world.folder.join(&name), "alone")?;
    let outboard = format!("/{}/bin/outboard", name.trim_end_matches(".tar.xz"));
    let args = ["run", "--rm", &image, &outboard, "devices", "--server", "127.0.0.1"];
    let said = podman::podman(&args)?;
    ensure!(said.contains("Outboard CPU"), "`outboard devices` prints {said}");
    podman::podman(&["rmi", &image]).map(drop)
}
