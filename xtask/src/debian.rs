//! Packages of Debian's that are unpacked and not installed.

use crate::test::Count;
use crate::util;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where [`take_program`] lays out a program.
pub(crate) fn program(name: &str) -> PathBuf {
    util::target_dir().join(name).join(name)
}

/// Lays out a program of a package, unless it is there.
pub(crate) fn take_program(name: &str, package: &str) -> Result<()> {
    let program = program(name);
    if program.exists() {
        return Ok(());
    }
    util::step(&format!("taking {name} out of Debian's package"));
    whole(program.parent().context("it lies in a folder")?, |new| {
        unpack(&download(&[package], new)?, new)?;
        let taken = fs::rename(new.join("usr/bin").join(name), new.join(name));
        taken.with_context(|| format!("{package} has {name}"))?;
        fs::remove_dir_all(new.join("usr")).context("cannot remove the rest")
    })
}

/// As [`take_program`], as a step of `cargo xtask test`: without the program, the tests that need
/// it say that they are skipped.
pub(crate) fn attempt_program(name: &str, package: &str) -> Count {
    match take_program(name, package) {
        Ok(()) => Count::ONE,
        Err(error) => Count::skipped(format!("{name}: Debian's package cannot be had: {error:#}")),
    }
}

/// Downloads packages into a folder; where they lie.
pub(crate) fn download(packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
    download_listed(packages, folder).or_else(|_| {
        // The lists of packages may be missing or old.
        util::update_packages()?;
        download_listed(packages, folder)
    })
}

/// Those that apt's lists have now.
fn download_listed(packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
    util::run(
        Command::new("apt-get")
            .args(["-qq", "download"])
            .args(packages)
            .current_dir(folder)
            .stderr(Stdio::null()),
    )?;
    downloaded(packages, folder)
}

fn downloaded(packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder).context("cannot list what was downloaded")?;
    let found: Vec<PathBuf> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .collect();
    if found.len() < packages.len() {
        bail!("apt-get has not left {}", packages.join(", "));
    }
    Ok(found)
}

/// A release of Debian's for a kind of processor, which need not be this machine's.
pub(crate) struct Release {
    pub(crate) name: &'static str,
    pub(crate) architecture: &'static str,
    /// The parts of the archive in which packages are looked for.
    pub(crate) components: &'static str,
}

/// The part of the archive that has Debian itself.
pub(crate) const MAIN: &str = "main";

/// A release whose lists of packages have been fetched.
pub(crate) struct Lists {
    settings: PathBuf,
}

impl Lists {
    fn apt(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("-qq").env("APT_CONFIG", &self.settings);
        command
    }

    /// Downloads packages into a folder; where they lie.
    pub(crate) fn download(&self, packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
        util::run(self.apt().arg("download").args(packages).current_dir(folder))?;
        downloaded(packages, folder)
    }
}

impl Release {
    /// Downloads packages of the release into a folder; where they lie.
    pub(crate) fn download(&self, packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
        self.lists()?.download(packages, folder)
    }

    /// Fetches its lists of packages. Apt's own settings and lists are not touched.
    pub(crate) fn lists(&self) -> Result<Lists> {
        let state = util::target_dir().join("apt").join(self.name).join(self.architecture);
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(state.join(part)).context("cannot create a folder for apt")?;
        }
        fs::write(state.join("status"), "").context("cannot write into apt's folder")?;
        let (name, components) = (self.name, self.components);
        let mirror = mirror().or_else(|_| {
            util::update_packages()?;
            mirror()
        })?;
        let source = format!("deb [signed-by={KEYS}] {mirror} {name} {components}\n");
        fs::write(state.join("sources.list"), source).context("cannot write into apt's folder")?;
        let shown = state.display();
        let settings = format!(
            "Dir::State \"{shown}\";\nDir::State::status \"{shown}/status\";\n\
             Dir::State::Lists \"{shown}/lists\";\nDir::Cache \"{shown}/cache\";\n\
             Dir::Etc::SourceList \"{shown}/sources.list\";\nDir::Etc::SourceParts \"-\";\n\
             APT::Architecture \"{0}\";\nAPT::Architectures {{ \"{0}\"; }};\n\
             APT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n",
            self.architecture
        );
        let file = state.join("apt.conf");
        fs::write(&file, settings).context("cannot write into apt's folder")?;
        let lists = Lists { settings: file };
        util::run(lists.apt().arg("update"))?;
        Ok(lists)
    }
}

/// Of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where this machine's apt gets Debian's packages.
fn mirror() -> Result<String> {
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"]);
    let output = targets.output().context("cannot start apt-get")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().find_map(|line| line.strip_prefix("Debian "));
    found.map(str::to_owned).context(
        "apt's lists name no place of Debian's packages; fetch them with:\n    sudo apt-get update",
    )
}

/// Unpacks packages into a folder and removes them.
pub(crate) fn unpack(packages: &[PathBuf], folder: &Path) -> Result<()> {
    for package in packages {
        extract(package, folder)?;
        fs::remove_file(package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    Ok(())
}

/// Unpacks a package, without installing it.
pub(crate) fn extract(package: &Path, folder: &Path) -> Result<()> {
    util::run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(folder))
}

/// Makes a folder by filling a new one beside it, so that it is there whole or not at all.
pub(crate) fn whole(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let new = folder.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("cannot remove {}", new.display()))?;
    }
    fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
    fill(&new)?;
    fs::rename(&new, folder).with_context(|| format!("cannot name {}", folder.display()))
}
