//! Debian's Chromium without a window, unpacked from its package and those that it needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::util::{self, step};

/// The browser, and a font for those that have none.
const PACKAGES: [&str; 2] = ["chromium-headless-shell", "fonts-dejavu-core"];
/// Where the package has the program.
const PROGRAM: &str = "usr/lib/chromium/chromium-headless-shell";

/// An unpacked browser.
pub(super) struct Browser {
    pub(super) program: PathBuf,
    /// Folders of its libraries, as the dynamic linker takes them.
    pub(super) libraries: String,
}

impl Browser {
    /// Gets it, unless it is there.
    pub(super) fn ensure(folder: &Path) -> Result<Browser> {
        if !folder.join(PROGRAM).exists() {
            download(folder)?;
        }
        let mut libraries = Vec::new();
        shared(&folder.join("usr/lib"), &mut libraries)?;
        let libraries: Vec<String> =
            libraries.iter().map(|path| path.display().to_string()).collect();
        let browser = Browser { program: folder.join(PROGRAM), libraries: libraries.join(":") };
        let works = Command::new(&browser.program)
            .args(["--no-sandbox", "--version"])
            .env("LD_LIBRARY_PATH", &browser.libraries)
            .output()
            .context("the browser does not start")?;
        if !works.status.success() {
            let said = String::from_utf8_lossy(&works.stderr).into_owned();
            bail!("the browser does not start: {}", said.trim());
        }
        Ok(browser)
    }
}

/// The folders that have shared libraries.
fn shared(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut has_some = false;
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            shared(&entry.path(), found)?;
        } else {
            has_some |= entry.file_name().to_string_lossy().contains(".so");
        }
    }
    if has_some {
        found.push(folder.to_path_buf());
    }
    Ok(())
}

/// Fetches the packages that this machine lacks and unpacks them, all or none.
fn download(folder: &Path) -> Result<()> {
    step("getting Debian's Chromium (100 MB), which is not installed");
    let new = folder.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("cannot remove {}", new.display()))?;
    }
    fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
    missing().and_then(|packages| fetch(&packages, &new)).or_else(|_| {
        // The lists of packages may be missing or old.
        util::update_packages()?;
        fetch(&missing()?, &new)
    })?;
    let files = fs::read_dir(&new).context("cannot list what was downloaded")?;
    let packages: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    for package in packages.iter().filter(|path| path.extension().is_some_and(|end| end == "deb")) {
        util::run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&new))?;
        fs::remove_file(package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::rename(&new, folder).with_context(|| format!("cannot name {}", folder.display()))
}

/// The packages that apt would install.
fn missing() -> Result<Vec<String>> {
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--simulate", "--reinstall", "--no-install-recommends"]).args(PACKAGES);
    let output = apt.output().context("Debian's apt is needed")?;
    let packages = to_install(&String::from_utf8_lossy(&output.stdout));
    if packages.is_empty() {
        bail!("apt knows no {}", PACKAGES.join(" or "));
    }
    Ok(packages)
}

/// The packages in what apt says of an installation that it simulates: `Inst NAME (VERSION …)`.
fn to_install(said: &str) -> Vec<String> {
    let name = |line: &str| line.strip_prefix("Inst ")?.split(' ').next().map(str::to_owned);
    said.lines().filter_map(name).collect()
}

fn fetch(packages: &[String], folder: &Path) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.args(["-qq", "download"]).args(packages).current_dir(folder).stderr(Stdio::null());
    util::run(&mut apt)
}

#[cfg(test)]
mod tests {
    use super::to_install;

    #[test]
    fn what_is_missing_is_read_from_a_simulation() {
        let said = "NOTE: x\nInst libogg0 (1.3.5-3 Debian:12.1 [amd64])\nConf libogg0 (1.3.5-3)\n";
        assert_eq!(to_install(said), ["libogg0"]);
        assert!(to_install("E: Unable to locate package\n").is_empty());
    }
}
