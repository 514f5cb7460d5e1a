//! Debian's kernel, unpacked from its package, and the programs that a machine needs.

use crate::debian;
use crate::util::{self, step};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const QEMU: &str = "qemu-system-x86_64";
/// The package that depends on the newest kernel.
const NEWEST: &str = "linux-image-amd64";
/// Where Debian has the tools for modules, whatever the search path.
const DEPMOD: &str = "/sbin/depmod";
const MODPROBE: &str = "/sbin/modprobe";

/// An unpacked kernel.
pub(super) struct Kernel {
    /// The folder with `boot` and `lib/modules`.
    pub(super) dir: PathBuf,
    /// Such as 6.1.0-9-amd64.
    pub(super) release: String,
}

impl Kernel {
    /// Installs the programs and gets the kernel, where they are not there: that of a package file,
    /// or Debian's newest.
    pub(super) fn ensure(package: Option<&Path>) -> Result<Kernel> {
        if !cfg!(target_arch = "x86_64") {
            bail!("machines are emulated on x86-64 only");
        }
        tools()?;
        let folder = util::target_dir().join("vm");
        let dir = match package {
            Some(package) => {
                let name = package.file_stem().context("the kernel's package has no name")?;
                let dir = folder.join(name);
                if !dir.exists() {
                    debian::whole(&dir, |new| {
                        debian::extract(package, new)?;
                        note_modules(new)
                    })?;
                }
                dir
            }
            None => {
                let dir = folder.join("kernel");
                if !dir.exists() {
                    download(&dir)?;
                }
                dir
            }
        };
        let modules = dir.join("lib/modules");
        let entries =
            fs::read_dir(&modules).with_context(|| format!("cannot list {}", modules.display()))?;
        let Some(release) =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).next()
        else {
            bail!("there is no kernel in {}: remove it, and it is fetched again", dir.display());
        };
        Ok(Kernel { dir, release })
    }

    pub(super) fn image(&self) -> PathBuf {
        self.dir.join(format!("boot/vmlinuz-{}", self.release))
    }

    /// The files of some modules and of those that they need, in the order in which to load them.
    pub(super) fn files(&self, modules: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for module in modules {
            let mut command = Command::new(MODPROBE);
            command
                .args(["--show-depends", "--set-version", &self.release, "--dirname"])
                .arg(&self.dir)
                .arg(module);
            for file in loads(&output(&mut command)?) {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }
}

/// The files in what `modprobe --show-depends` prints: `insmod FILE` for each, in order, and
/// `builtin NAME`.
fn loads(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.strip_prefix("insmod ")?.split_whitespace().next())
        .map(PathBuf::from)
        .collect()
}

/// Sees to it that the programs are there.
fn tools() -> Result<()> {
    let qemu =
        Command::new(QEMU).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if qemu.is_ok() && Path::new(DEPMOD).exists() && Path::new(MODPROBE).exists() {
        return Ok(());
    }
    util::install(&["qemu-system-x86", "kmod"])
}

/// Fetches the newest kernel's package and unpacks it, whole or not at all.
fn download(dir: &Path) -> Result<()> {
    step("getting Debian's kernel (70 MB), which is not installed");
    debian::whole(dir, |new| {
        let fetched = package().and_then(|package| debian::download(&[&package], new));
        let fetched = fetched.or_else(|_| {
            // The lists of packages may be missing or old.
            util::update_packages()?;
            debian::download(&[&package()?], new)
        });
        let packages = fetched.with_context(|| {
            format!("cannot get the package {NEWEST}: this needs Debian's apt, its lists of packages and a network")
        })?;
        debian::unpack(&packages, new)?;
        note_modules(new)
    })
}

/// Notes which modules of an unpacked kernel need which.
fn note_modules(dir: &Path) -> Result<()> {
    let releases =
        fs::read_dir(dir.join("lib/modules")).context("the kernel's package has no modules")?;
    for release in releases.flatten() {
        util::run(Command::new(DEPMOD).arg("--basedir").arg(dir).arg(release.file_name()))?;
    }
    Ok(())
}

/// The package of the newest kernel itself.
fn package() -> Result<String> {
    let text = output(Command::new("apt-cache").args(["depends", "--important", NEWEST]))?;
    dependency(&text).with_context(|| format!("apt knows no kernel behind {NEWEST}"))
}

/// The kernel's package in what `apt-cache depends` prints.
fn dependency(text: &str) -> Option<String> {
    let package =
        text.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))?;
    Some(format!("linux-image-{package}"))
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String> {
    let shown = util::show(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{dependency, loads};
    use std::path::Path;

    #[test]
    fn modules_are_loaded_in_the_order_that_modprobe_says() {
        let text = "builtin virtio\ninsmod /k/lib/9pnet.ko \ninsmod /k/lib/9p.ko option=1\n";
        assert_eq!(loads(text), [Path::new("/k/lib/9pnet.ko"), Path::new("/k/lib/9p.ko")]);
    }

    #[test]
    fn the_kernel_itself_is_what_the_package_depends_on() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-9-amd64\n";
        assert_eq!(dependency(text).as_deref(), Some("linux-image-6.1.0-9-amd64"));
        assert_eq!(dependency("linux-image-amd64\n"), None);
    }
}
