//! The test programs for aarch64.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cross::targets::folder;
use crate::cross::tools;
use crate::programs::{self, Case, Platform};
use crate::toolchain::{self, Toolchain};
use crate::util::step;

/// Of other releases: folder, wheels. NVIDIA has none of 12.0 for aarch64.
const WHEELS: [(&str, &[&str]); 4] = [
    ("12.4", &["nvidia-cuda-runtime-cu12==12.4.127"]),
    ("12.9", &["nvidia-cuda-runtime-cu12==12.9.79"]),
    ("13.0", &["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-nvrtc==13.0.88"]),
    ("13.5", &["nvidia-cuda-runtime==13.5.37"]),
];

/// Compiles those with these names, or all, and gets NVIDIA's runtimes for them; the folder.
pub(crate) fn arm_programs(names: Option<&[&str]>) -> Result<(PathBuf, Vec<Case>)> {
    let (runtimes, dir) = (folder().join("cuda-aarch64"), folder().join("programs-aarch64"));
    let toolchain = Toolchain::ensure()?;
    for (release, wheels) in WHEELS {
        let unpacked = runtimes.join(release);
        if !unpacked.exists() {
            step(&format!("installing CUDA {release}'s runtime for aarch64"));
            let new = runtimes.join(format!("{release}.new"));
            toolchain.unpack_arm_wheels(wheels, &new)?;
            fs::rename(&new, &unpacked).context("cannot name the runtime's folder")?;
        }
        let libraries = dir.join("lib").join(release);
        fs::create_dir_all(&libraries).context("cannot create a folder of programs")?;
        programs::copy_runtime(&toolchain::libraries(&unpacked, release), &libraries)?;
    }
    let platform = Platform {
        dir: dir.clone(),
        compiler: vec!["aarch64-linux-gnu-g++".into()],
        beside_nvcc: Some(tools::arm_compiler_beside_nvcc()?),
        runtimes: Some(runtimes),
    };
    Ok((dir, programs::for_platform(&platform, names)?))
}
