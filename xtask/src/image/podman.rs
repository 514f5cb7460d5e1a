//! podman, and what a container of it is.

use super::{APART, base, dist, packages};
use crate::apart;
use crate::util::{self, root};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Images are kept in memory: they go with the run.
const SETTINGS: [(&str, &str); 3] = [
    (
        "storage.conf",
        "[storage]\ndriver = \"overlay\"\ngraphroot = \"/run/store\"\nrunroot = \"/run/podman\"\n",
    ),
    // There is no systemd; all containers have the network of this run.
    (
        "containers.conf",
        "[containers]\nnetns = \"host\"\n[engine]\ncgroup_manager = \"cgroupfs\"\n\
         events_logger = \"file\"\nruntime = \"crun\"\n",
    ),
    ("registries.conf", "unqualified-search-registries = []\n"),
];

/// How containers run unless a case says otherwise: with what Kubernetes' profile `restricted` has
/// them give up, on a file system that nobody writes.
pub(super) const CONFINED: [&str; 3] =
    ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"];

/// Where this run's network has its servers: loopback would be the container itself to a container.
pub(crate) const ADDRESS: &str = "192.0.2.1";

/// Makes `podman` usable as if it were installed.
pub(crate) fn lay_out() -> Result<()> {
    let debian = packages::dir();
    apart::lay_over(&[("etc", &[&debian.join("etc")]), ("usr", &[&debian.join("usr")])])?;
    for (name, text) in SETTINGS {
        let file = format!("/etc/containers/{name}");
        fs::write(&file, text).with_context(|| format!("cannot write {file}"))?;
    }
    // crun takes one of the two versions of control groups, and nothing in between.
    let unified = "/sys/fs/cgroup/unified";
    if fs::metadata(unified).is_ok() {
        util::run(Command::new("umount").arg(unified))?;
    }
    let ip = |args: &[&str]| util::run(Command::new("ip").args(args));
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])
}

/// Runs podman; what it prints, which must succeed.
pub(crate) fn podman(args: &[&str]) -> Result<String> {
    let output = output(args)?;
    if !output.status.success() {
        bail!("`podman {}`: {}", args.join(" "), said(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn output(args: &[&str]) -> Result<Output> {
    let mut command = Command::new("timeout");
    command.args(["120", "podman"]).args(args).stdin(Stdio::null());
    command.output().context("cannot start podman")
}

/// All that a command has said.
pub(crate) fn said(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    texts.concat().trim().to_owned()
}

/// Makes an image of an archive of files; what it is called.
pub(crate) fn import(archive: &Path, name: &str) -> Result<String> {
    let image = format!("localhost/{name}");
    podman(&["import", "--quiet", &archive.display().to_string(), &image])?;
    Ok(image)
}

/// The images of a registry on which the recipe builds, from Debian's packages.
pub(super) fn bases() -> Result<()> {
    let archive = base::archive().display().to_string();
    podman(&["import", "--quiet", &archive, &base::argument("BASE")?])?;
    let go = [
        "PATH=/usr/local/go/bin:/usr/bin:/bin",
        "GOPROXY=off",
        "GOMODCACHE=/go",
        "GOCACHE=/gobuild",
    ];
    let go = go.map(|variable| format!("--change=ENV {variable}"));
    let mut args = vec!["import", "--quiet"];
    args.extend(go.iter().map(String::as_str));
    let name = base::argument("GO_BUILDER")?;
    args.extend([&*archive, &*name]);
    podman(&args).map(drop)
}

/// Does what a line of the documentation says, `podman build …`, with this machine's Go, and with
/// what is staged in place of the recipe's stage `dist`.
pub(super) fn build(line: &str) -> Result<()> {
    let words = line.strip_prefix("podman build ").context("the line builds an image")?;
    let go = |what: &str, at: &str, how: &str| -> Result<String> {
        let output = Command::new("go").args(["env", what]).output().context("there is Go")?;
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(format!("--volume={path}:{at}:{how}"))
    };
    let mut command = Command::new("timeout");
    command.args(["200", "podman", "build", "--pull=never"]).current_dir(root());
    command.arg(format!("--build-context=dist={}", dist().display()));
    command.args([go("GOROOT", "/usr/local/go", "ro")?, go("GOMODCACHE", "/go", "ro")?]);
    command.arg(go("GOCACHE", "/gobuild", "rw")?).args(words.split_whitespace());
    let output = command.output().context("cannot start podman")?;
    fs::write(APART.folder().join("build.log"), said(&output))?;
    if !output.status.success() {
        bail!("`{line}`: {}", said(&output));
    }
    Ok(())
}

/// A container that goes on until it is dropped.
pub(crate) struct Container {
    pub(crate) name: String,
}

impl Container {
    /// Runs an image with its own command, confined.
    pub(crate) fn start(
        name: &str,
        image: &str,
        flags: &[&str],
        args: &[&str],
    ) -> Result<Container> {
        let run = ["run", "--detach", "--name", name];
        podman(&[&run, &CONFINED[..], flags, &[image], args].concat())?;
        Ok(Container { name: name.into() })
    }

    /// All that it has said.
    pub(crate) fn log(&self) -> Result<String> {
        Ok(said(&output(&["logs", &self.name])?))
    }

    /// Runs a command in it; what that prints.
    pub(crate) fn exec(&self, args: &[&str]) -> Result<String> {
        podman(&[&["exec", self.name.as_str()], args].concat())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Ok(log) = self.log() {
            let _ = fs::write(APART.folder().join(format!("{}.log", self.name)), log);
        }
        let _ = output(&["rm", "--force", "--time=0", &self.name]);
    }
}
