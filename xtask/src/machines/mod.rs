//! Systems of other kinds on this machine: their files in a folder of their own, which is the root
//! of what runs there, and an emulator where the processor is another one. The network is this
//! machine's.

mod emulation;
mod programs;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cross::targets::folder;
use crate::cross::tools;
use crate::debian::{self, MAIN, Release};
use crate::util::{said, step};
pub(crate) use emulation::Emulation;
pub(crate) use programs::arm_programs;

/// Where an installation and the test programs are seen there.
pub(crate) const INSTALLED: &str = "/opt/outboard";
pub(crate) const PROGRAMS: &str = "/programs";

/// A system of another kind.
pub(crate) struct Machine {
    root: PathBuf,
    emulator: Option<PathBuf>,
    /// The namespace that it is in, if not in one for each command.
    emulation: Option<Emulation>,
    /// What of this machine is seen there, and where.
    seen: Vec<(PathBuf, &'static str)>,
}

/// Enters the namespaces' half: mounts what is seen, says by whom aarch64 programs are run, and
/// becomes the command. What is mounted ends with it.
const ENTER: [&str; 3] = [
    r#"
set -e
root=$1 emulator=$2
shift 2
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
if [ -n "$emulator" ]; then
"#,
    REGISTER,
    r#"
fi
exec chroot "$root" "$@"
"#,
];

/// Has Linux start aarch64 programs by `$emulator` in this user namespace.
const REGISTER: &str = r#"
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$emulator:F" \
    > /proc/sys/fs/binfmt_misc/register
"#;

/// A user of its own lets it mount and say who runs aarch64 programs, for itself alone.
const NAMESPACES: [&str; 6] =
    ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"];

impl Machine {
    /// Debian 13 for aarch64.
    pub(crate) fn arm() -> Result<Machine> {
        let release = Release { name: tools::NEW, architecture: "arm64", components: MAIN };
        let root = system("root-aarch64", &release, &["libc6", "libstdc++6", "libgcc-s1", "dash"])?;
        Ok(Machine { emulator: Some(tools::emulator()?), ..Machine::with_root(root) })
    }

    /// Debian 11, whose glibc is 2.31: the oldest system whose packages Debian's mirrors have.
    pub(crate) fn old() -> Result<Machine> {
        let architecture = tools::host_architecture()?;
        let release = Release { name: "bullseye", architecture, components: MAIN };
        let root = system("root-old", &release, &["libc6", "libstdc++6", "libgcc-s1", "dash"])?;
        Ok(Machine::with_root(root))
    }

    /// Nothing at all.
    pub(crate) fn empty() -> Result<Machine> {
        let root = folder().join("root-empty");
        fill(&root)?;
        Ok(Machine::with_root(root))
    }

    /// A whole aarch64 system in a folder, with its own users.
    pub(crate) fn emulated(root: PathBuf, emulation: Emulation) -> Result<Machine> {
        fill(&root)?;
        Ok(Machine { emulation: Some(emulation), ..Machine::with_root(root) })
    }

    fn with_root(root: PathBuf) -> Machine {
        Machine { root, emulator: None, emulation: None, seen: Vec::new() }
    }

    /// The same with a folder of this machine.
    pub(crate) fn with(mut self, folder: &Path, at: &'static str) -> Machine {
        self.seen.push((folder.to_path_buf(), at));
        self
    }

    /// A command that runs a program there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = match &self.emulation {
            Some(emulation) => emulation.command(),
            None => {
                let mut command = Command::new("unshare");
                command.args(NAMESPACES);
                command
            }
        };
        command.args(["sh", "-c", &ENTER.concat(), "sh"]).arg(&self.root);
        command.arg(self.emulator.as_deref().unwrap_or(Path::new("")));
        for (folder, at) in &self.seen {
            command.arg(folder).arg(at);
        }
        command.args(["--", program]);
        command.env("OUTBOARD_CONFIG", "none").env_remove("OUTBOARD_LIB");
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    /// Where its files are.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What a line of shell prints there, which must succeed.
    pub(crate) fn says(&self, line: &str) -> Result<String> {
        said(self.command("/bin/sh").args(["-ec", line]).stdin(Stdio::null()))
    }

    /// Fails with what hinders if no program can be run there.
    pub(crate) fn check(&self) -> Result<()> {
        let output = self.command("/bin/sh").args(["-c", "exit 7"]).output();
        let output = output.context("cannot start `unshare`")?;
        match output.status.code() {
            Some(7) => Ok(()),
            _ => bail!(
                "a system of another kind cannot be entered: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }
    }
}

/// The folders that are mounted over.
fn fill(root: &Path) -> Result<()> {
    for folder in ["dev", "proc", "tmp"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    Ok(())
}

/// A system out of packages, unless it is there.
fn system(name: &str, release: &Release, packages: &[&str]) -> Result<PathBuf> {
    let root = folder().join(name);
    if !root.exists() {
        step(&format!("unpacking a system of Debian's, {} {}", release.name, release.architecture));
        debian::whole(&root, |new| {
            // Where packages put files by their old names, these are the new ones.
            for folder in ["bin", "lib", "lib64"] {
                fs::create_dir_all(new.join("usr").join(folder))
                    .context("cannot create a folder of the system")?;
                symlink(Path::new("usr").join(folder), new.join(folder))
                    .context("cannot link a folder of the system")?;
            }
            debian::unpack(&release.download(packages, new)?, new)?;
            if !new.join("bin/sh").exists() {
                symlink("dash", new.join("bin/sh")).context("cannot link the shell")?;
            }
            fill(new)
        })?;
    }
    Ok(root)
}
