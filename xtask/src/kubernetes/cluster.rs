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

/// Each with the folder of the module that names it.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("etcd", "cluster", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "cluster", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-scheduler", "cluster", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kube-controller-manager", "cluster", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kueue", KUEUE, "sigs.k8s.io/kueue/cmd/kueue"),
];
const KUEUE: &str = "kueue";

/// Builds all of them, and gives their folder.
pub(super) fn build() -> Result<PathBuf> {
    let folder = util::target_dir().join("kubernetes/bin");
    fs::create_dir_all(&folder)?;
    for (name, of, package) in PROGRAMS {
        let started = Instant::now();
        let mut command = link(&folder.join(name), package);
        util::run(command.current_dir(module().join(of)))?;
        step(&format!("{name}: {:.0} s", started.elapsed().as_secs_f64()));
    }
    kinds_of_kueue(&folder.join("kueue-crds"))?;
    util::run(&mut link(&folder.join("outboard-dra"), "."))?;
    runtime(&folder)?;
    Ok(folder)
}

/// Copies what the API server is told of Kueue's kinds of objects.
fn kinds_of_kueue(folder: &Path) -> Result<()> {
    let mut list = go();
    list.current_dir(module().join(KUEUE));
    let output = list.args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue"]).output();
    let output = output.context("cannot start `go`")?;
    let there = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    let kinds = Path::new(&there).join("config/components/crd/bases");
    let files = fs::read_dir(&kinds).with_context(|| format!("there is no {}", kinds.display()))?;
    for file in files.flatten() {
        fs::copy(file.path(), folder.join(file.file_name()))?;
    }
    Ok(())
}

fn link(file: &Path, package: &str) -> Command {
    let (release, major, minor) = RELEASE;
    let of = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let flags = [of("gitVersion", release), of("gitMajor", major), of("gitMinor", minor)];
    let mut command = go();
    // What runs for a minute is not worth optimising: without it, and with garbage collected less
    // often, the compiler takes a third less time.
    command
        .envs([("CGO_ENABLED", "0"), ("GOGC", "400")])
        .args(["build", "-trimpath", "-gcflags", "all=-N -l"])
        .args(["-ldflags", &format!("-s -w {}", flags.join(" ")), "-o"])
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
