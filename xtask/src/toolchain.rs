//! `cargo xtask toolchain`: CUDA's compiler, headers and runtimes, from their PyPI wheels, in
//! `.venv`.
//!
//! No CUDA installation is needed, and no NVIDIA driver. A second call finds everything in place
//! and returns at once.

use crate::util::{self, root, step};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The compiler and what it needs, pinned: generated facts and PTX depend on the exact version.
const WHEELS: &[&str] = &[
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-nvrtc==13.0.88",
    // NVML: its header, and the Python module that programs use.
    "nvidia-nvml-dev==13.0.87",
    "nvidia-ml-py==13.580.126",
];

/// What test programs need of other releases: folder, wheel. Runtimes that programs bring, from the
/// oldest that a server's driver must serve, and CUPTI, which frameworks ask for its version.
const RELEASES: &[(&str, &str)] = &[
    ("11.8", "nvidia-cuda-runtime-cu11==11.8.89"),
    ("12.0", "nvidia-cuda-runtime-cu12==12.0.146"),
    ("12.4", "nvidia-cuda-runtime-cu12==12.4.127"),
    ("12.9", "nvidia-cuda-runtime-cu12==12.9.79"),
    ("13.5", "nvidia-cuda-runtime==13.5.37"),
    ("cupti-13.5", "nvidia-cuda-cupti==13.5.25"),
    // Of runtimes as old as this there are no wheels; a program of their time has one in it.
    #[cfg(target_arch = "x86_64")]
    ("9.1", "xgboost==0.72.1"),
];

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> Result<()> {
    let toolchain = Toolchain::ensure()?.with_releases()?;
    step(&format!("CUDA toolchain ready: {}", toolchain.nvcc().display()));
    Ok(())
}

/// An installed toolchain.
pub(crate) struct Toolchain {
    cuda: PathBuf,
    venv: PathBuf,
}

impl Toolchain {
    /// Installs the compiler if it is missing, and says where it is.
    pub(crate) fn ensure() -> Result<Self> {
        let venv = root().join(".venv");
        let stamp = venv.join("outboard-wheels.txt");
        let wanted: String = WHEELS.iter().map(|wheel| format!("{wheel}\n")).collect();
        let installed = || fs::read_to_string(&stamp).is_ok_and(|have| have == wanted);
        if !installed() {
            require_tools()?;
            let _lock = lock()?;
            // Another run may have installed it while this one waited for the lock.
            if !installed() {
                install(&venv)?;
                fs::write(&stamp, &wanted)
                    .context("cannot write the stamp of the virtual environment")?;
            }
        }
        Self::find(&venv)
    }

    /// Installs what is missing of other releases.
    pub(crate) fn with_releases(self) -> Result<Self> {
        let releases = self.venv.join("runtimes");
        let missing = |(folder, wheel): &&(&str, &str)| {
            !fs::read_to_string(releases.join(folder).join(STAMP)).is_ok_and(|have| have == *wheel)
        };
        if RELEASES.iter().any(|release| missing(&release)) {
            let _lock = lock()?;
            for (folder, wheel) in RELEASES.iter().filter(missing) {
                install_release(&self.venv, folder, wheel)?;
            }
        }
        Ok(self)
    }

    fn find(venv: &Path) -> Result<Self> {
        let lib = venv.join("lib");
        let entries =
            fs::read_dir(&lib).with_context(|| format!("cannot read {}", lib.display()))?;
        for entry in entries.flatten() {
            let cuda = entry.path().join("site-packages/nvidia/cu13");
            if cuda.join("bin/nvcc").exists() {
                return Ok(Self { cuda, venv: venv.to_path_buf() });
            }
        }
        bail!("no nvcc under {}: remove .venv and run `cargo xtask toolchain` again", lib.display())
    }

    pub(crate) fn nvcc(&self) -> PathBuf {
        self.cuda.join("bin/nvcc")
    }

    /// Puts a wheel, without what it depends on, into a folder.
    pub(crate) fn unpack_wheel(&self, wheel: &str, folder: &Path) -> Result<()> {
        util::run(pip(&self.venv).args(["--no-deps", "--target"]).arg(folder).arg(wheel))
    }

    /// Where the headers of CUDA 13.0 lie.
    pub(crate) fn include(&self) -> PathBuf {
        self.cuda.join("include")
    }

    /// Where the libraries of CUDA 13.0 lie (the runtime, static and shared, and NVRTC).
    pub(crate) fn lib(&self) -> PathBuf {
        self.cuda.join("lib")
    }

    /// The folder with the runtime libraries of a release, such as "12.9".
    pub(crate) fn runtime(&self, release: &str) -> PathBuf {
        match release {
            "13.0" => self.lib(),
            _ => libraries(&self.venv.join("runtimes").join(release), release),
        }
    }

    /// Puts wheels for aarch64 into a folder.
    pub(crate) fn unpack_arm_wheels(&self, wheels: &[&str], folder: &Path) -> Result<()> {
        let kinds = ["manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_25_aarch64"];
        let mut command = pip(&self.venv);
        command.args(["--no-deps", "--only-binary", ":all:", "--target"]).arg(folder);
        kinds.iter().for_each(|kind| _ = command.args(["--platform", kind]));
        util::run(command.args(wheels))
    }
}

/// Where the libraries of a release's runtime, or of the program that has it, lie in a folder into
/// which its wheel was unpacked.
pub(crate) fn libraries(unpacked: &Path, release: &str) -> PathBuf {
    unpacked.join(match release.split('.').next() {
        Some("8" | "9" | "10") => "xgboost/lib",
        Some("11" | "12") => "nvidia/cuda_runtime/lib",
        _ => "nvidia/cu13/lib",
    })
}

/// Which wheel is in a folder.
const STAMP: &str = "wheel.txt";

fn install(venv: &Path) -> Result<()> {
    if !venv.join("bin/python3").exists() {
        step("creating the virtual environment .venv");
        util::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    }
    step(&format!(
        "installing CUDA's compiler from PyPI into .venv ({} wheels, about 170 MB)",
        WHEELS.len()
    ));
    util::run(pip(venv).args(WHEELS))
}

/// Puts a wheel into a folder of its own, whole or not at all.
fn install_release(venv: &Path, folder: &str, wheel: &str) -> Result<()> {
    step(&format!("installing {wheel}"));
    let (target, new) =
        (venv.join("runtimes").join(folder), venv.join("runtimes").join(format!("{folder}.new")));
    for old in [&target, &new] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    util::run(pip(venv).args(["--no-deps", "--target"]).arg(&new).arg(wheel))?;
    fs::write(new.join(STAMP), wheel)
        .with_context(|| format!("cannot write into {}", new.display()))?;
    fs::rename(&new, &target).with_context(|| format!("cannot name {}", target.display()))
}

fn pip(venv: &Path) -> Command {
    let mut command = Command::new(venv.join("bin/python3"));
    command.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]);
    command
}

/// Names each missing prerequisite with the command that installs it.
pub(crate) fn require_tools() -> Result<()> {
    let works = |program: &str, args: &[&str]| {
        Command::new(program)
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let mut packages = Vec::new();
    let mut missing = Vec::new();
    if !works("python3", &["--version"]) {
        missing.push("Python 3");
        packages.extend(["python3", "python3-venv"]);
    } else if !works("python3", &["-c", "import venv, ensurepip"]) {
        missing.push("Python's venv module");
        packages.push("python3-venv");
    }
    if !works("g++", &["--version"]) {
        missing.push("a C++ compiler (nvcc needs g++)");
        packages.push("g++");
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "{} missing; install with:\n    sudo apt-get install -y {}",
        missing.join(", "),
        packages.join(" ")
    )
}

/// Held while installing, so that two runs at once do not mix their files.
fn lock() -> Result<fs::File> {
    let dir = util::target_dir();
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join("toolchain.lock");
    let file =
        fs::File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        step("waiting for another run that is installing the toolchain");
        file.lock().context("cannot lock the toolchain")?;
    }
    Ok(file)
}
