//! `cargo xtask debian-programs`: programs of Debian's that use CUDA, unpacked, and the recipes of
//! `tests/compatibility` that run them natively and through a server.

use crate::debian::{self, Lists, Release};
use crate::stage::{Dist, Profile};
use crate::test::Count;
use crate::toolchain::Toolchain;
use crate::util::{self, root, step, target_dir};
use anyhow::{Context, Result};
use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// NVIDIA's driver library, or `cpu` for the software device.
    #[arg(long, default_value = "libcuda.so.1")]
    driver: String,
    /// Only what the software device runs quickly: without RELION, BART and cuFFT, which have
    /// 300 MB.
    #[arg(long)]
    quick: bool,
    /// Make this file of all that the recipes need besides CUDA, for a machine without network,
    /// and run nothing.
    #[arg(long, conflicts_with = "quick", value_name = "FILE")]
    pack: Option<PathBuf>,
    /// Where results and logs go; target/debian-programs/results if not said.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Options for tests/compatibility/programs.py, such as `--only relion`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// The release whose programs they are. CUDA is not part of Debian itself.
const DEBIAN: Release =
    Release { name: "bookworm", architecture: "amd64", components: "main contrib non-free" };
/// What stands in for libraries of CUDA 11.
const CUDA: [&str; 2] = ["nvidia-cufft==12.0.0.61", "nvidia-cublas==13.0.0.19"];
/// The file that says which packages a program's folder has.
const LIST: &str = "packages";

fn folder() -> PathBuf {
    target_dir().join("debian-programs")
}

fn script(command: &str) -> Command {
    let mut script = Command::new("python3");
    script.arg(root().join("tests/compatibility/programs.py")).arg(command);
    script.env("PYTHONDONTWRITEBYTECODE", "1");
    script
}

pub(crate) fn run(args: &Args) -> Result<()> {
    unpack(args.quick)?;
    if let Some(file) = &args.pack {
        return util::run(script("pack").arg("--programs").arg(folder()).arg("--out").arg(file));
    }
    let toolchain = Toolchain::ensure()?;
    if !args.quick {
        stand_ins(&toolchain, &args.driver)?;
    }
    let dist = Dist::build(Profile::Release)?;
    let out = args.out.clone().unwrap_or_else(|| folder().join("results"));
    let mut recipes = script("run");
    recipes.arg("--programs").arg(folder()).arg("--dist").arg(&dist.dir);
    recipes.args(["--driver", &args.driver]).arg("--out").arg(out);
    for libraries in [toolchain.lib(), cuda().join("nvidia/cu13/lib")] {
        recipes.arg("--cuda").arg(libraries);
    }
    util::run(recipes.args(&args.options))
}

/// A step of `cargo xtask test`: what its recipes need. Without it, their test is skipped.
pub(crate) fn attempt() -> Count {
    match unpack(true) {
        Ok(()) => Count::ONE,
        Err(error) => {
            Count::skipped(format!("debian programs: the packages cannot be had: {error:#}"))
        }
    }
}

/// Unpacks the programs, each into a folder of its own.
fn unpack(quick: bool) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        anyhow::bail!("Debian has them with CUDA for x86-64 only");
    }
    let listed = util::said(script("packages").args(quick.then_some("--quick")))?;
    let lists = OnceCell::new();
    for line in listed.lines() {
        let (program, packages) = line.split_once(' ').context("packages follow their program")?;
        let laid_out = folder().join(program);
        if fs::read_to_string(laid_out.join(LIST)).is_ok_and(|list| list == packages) {
            continue;
        }
        step(&format!("taking {program} out of Debian's packages"));
        // What an earlier list had.
        let _ = fs::remove_dir_all(&laid_out);
        if lists.get().is_none() {
            let _ = lists.set(DEBIAN.lists()?);
        }
        let lists: &Lists = lists.get().context("the lists have been fetched")?;
        let wanted: Vec<&str> = packages.split(' ').collect();
        debian::whole(&laid_out, |new| {
            debian::unpack(&lists.download(&wanted, new)?, new)?;
            fs::write(new.join(LIST), packages).context("cannot write what is unpacked")
        })?;
    }
    Ok(())
}

/// Where the libraries of CUDA lie that the compiler does not bring.
fn cuda() -> PathBuf {
    folder().join("cuda")
}

/// Gets what stands in for libraries of CUDA 11, unless a GPU's machine has it.
fn stand_ins(toolchain: &Toolchain, driver: &str) -> Result<()> {
    let wheels = match driver {
        // cuBLAS has nothing that it could run.
        "cpu" => &CUDA[..1],
        _ => &CUDA[..],
    };
    let wanted = wheels.join(" ");
    // What was got for a GPU begins with what the software device needs.
    let there = fs::read_to_string(cuda().join(LIST)).unwrap_or_default();
    if there.starts_with(&wanted) {
        return Ok(());
    }
    step(&format!("installing {wanted} (200 MB and more)"));
    let _ = fs::remove_dir_all(cuda());
    debian::whole(&cuda(), |new| {
        for wheel in wheels {
            toolchain.unpack_wheel(wheel, new)?;
        }
        fs::write(new.join(LIST), &wanted).context("cannot write what is installed")
    })
}
