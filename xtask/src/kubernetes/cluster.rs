//! The programs of a cluster, built from their modules, and an OCI runtime of Debian's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{go, module};
use crate::util::{self, step};

/// The release of Kubernetes, which its programs are told when they are linked. The module
/// `kubernetes/cluster` names it, too.
const RELEASE: (&str, &str, &str) = ("v1.37.2", "1", "37");

const PROGRAMS: [(&str, &str); 4] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
];

/// Builds all of them, and gives their folder.
pub(super) fn build() -> Result<PathBuf> {
    let folder = util::target_dir().join("kubernetes/bin");
    fs::create_dir_all(&folder)?;
    for (name, package) in PROGRAMS {
        let started = Instant::now();
        let mut command = link(&folder.join(name), package);
        util::run(command.current_dir(module().join("cluster")))?;
        step(&format!("{name}: {:.0} s", started.elapsed().as_secs_f64()));
    }
    util::run(&mut link(&folder.join("outboard-dra"), "."))?;
    runtime(&folder)?;
    Ok(folder)
}

fn link(file: &Path, package: &str) -> Command {
    let (release, major, minor) = RELEASE;
    let of = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let flags = [of("gitVersion", release), of("gitMajor", major), of("gitMinor", minor)];
    let mut command = go();
    command
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-ldflags", &format!("-s -w {}", flags.join(" ")), "-o"])
        .arg(file)
        .arg(package);
    command
}

/// Takes runc out of Debian's package: the machine needs none otherwise.
fn runtime(folder: &Path) -> Result<()> {
    let (runc, unpacked) = (folder.join("runc"), folder.join("unpacked"));
    if runc.exists() {
        return Ok(());
    }
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir_all(&unpacked)?;
    let fetch =
        || util::run(Command::new("apt-get").current_dir(&unpacked).args(["download", "runc"]));
    if fetch().is_err() {
        util::update_packages()?;
        fetch()?;
    }
    let package = fs::read_dir(&unpacked)?.next().context("apt-get downloads a package")??;
    util::run(Command::new("dpkg").arg("-x").arg(package.path()).arg(&unpacked))?;
    fs::copy(unpacked.join("usr/sbin/runc"), &runc).context("the package has runc")?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}
