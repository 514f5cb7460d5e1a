//! `cargo xtask fuzz`: runs the fuzz targets for a while, with coverage guidance, on the stable
//! compiler.
//!
//! libFuzzer needs nothing but the coverage counters that LLVM puts in; `cargo fuzz` would ask for
//! a nightly compiler only for the sanitizers, which safe code can do without.

use crate::programs;
use crate::test::{self, Program};
use crate::util::{self, root, step};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The targets, with the largest input in bytes.
const TARGETS: &[(&str, u32)] = &[
    ("frames", 4096),
    ("handshake", 2048),
    ("fatbin", 65536),
    ("ptx", 16384),
    ("nvml", 4096),
    ("client", 4096),
    ("worker", 4096),
    ("peer", 4096),
    ("pool", 8192),
    ("files", 4096),
];

/// Memory a target may use, in MiB: an input must not make a parser allocate without bound.
const MEMORY: u32 = 1024;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One target: frames, handshake, fatbin, ptx, nvml, client, worker, peer, pool or files. All
    /// by default.
    target: Option<String>,
    /// How long each runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<_> = TARGETS
        .iter()
        .filter(|(name, _)| args.target.as_deref().is_none_or(|wanted| wanted == *name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        bail!("the targets are {}", names.join(", "));
    }
    fuzz_all(&chosen, args.seconds)
}

/// Runs every target for so long and says how many there were; an input that breaks one is an
/// error.
pub(crate) fn all(seconds: u64) -> Result<u64> {
    if seconds == 0 {
        return Ok(0);
    }
    fuzz_all(&TARGETS.iter().collect::<Vec<_>>(), seconds)?;
    Ok(TARGETS.len() as u64)
}

/// Builds the targets and runs these, one on each processor.
fn fuzz_all(chosen: &[&(&str, u32)], seconds: u64) -> Result<()> {
    let programs = build()?;
    util::for_each(chosen, util::processors(), |(name, largest)| {
        let program = programs
            .iter()
            .find(|program| program.name.strip_prefix(PREFIX) == Some(name))
            .with_context(|| format!("fuzz/Cargo.toml has no target {PREFIX}{name}"))?;
        fuzz(name, &program.executable, *largest, seconds)
    })
}

/// What their names in the workspace begin with.
const PREFIX: &str = "fuzz_";

fn target_dir() -> PathBuf {
    util::target_dir().join("fuzz")
}

/// Builds the targets. They share third-party crates with the workspace's other tests, since only
/// the workspace's own crates have another compiler.
fn build() -> Result<Vec<Program>> {
    step("building the fuzz targets");
    let targets = format!("{PREFIX}*");
    let wanted = ["--workspace", "--features", "outboard-fuzz/libfuzzer", "--test", &targets];
    test::build(&root(), &wanted, Some(&root().join("fuzz/rustc.sh")))
}

fn fuzz(name: &str, executable: &Path, largest: u32, seconds: u64) -> Result<()> {
    let corpus = target_dir().join("corpus").join(name);
    fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    if name == "fatbin" {
        copy_fat_binaries(&corpus)?;
    }
    let findings = target_dir().join("findings").join(name);
    fs::create_dir_all(&findings)
        .with_context(|| format!("cannot create {}", findings.display()))?;
    step(&format!("fuzzing {name} for {seconds} s"));
    let mut command = Command::new(executable);
    command.arg(&corpus).arg(root().join("fuzz/seeds").join(name));
    command.arg(format!("-artifact_prefix={}/", findings.display()));
    command.args([
        format!("-max_total_time={seconds}"),
        format!("-max_len={largest}"),
        format!("-rss_limit_mb={MEMORY}"),
        format!("-malloc_limit_mb={}", MEMORY / 2),
        "-timeout=10".to_owned(),
        "-verbosity=0".to_owned(),
        "-print_final_stats=1".to_owned(),
    ]);
    let output =
        command.output().with_context(|| format!("cannot start the fuzz target {name}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("an input breaks {name}; it is in {}:\n{told}", findings.display());
    }
    let inputs = told
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units: "))
        .unwrap_or("?");
    eprintln!("    {name}: {inputs} inputs, none breaks it");
    Ok(())
}

/// The fat binaries of the test programs, if they have been built, are good starting points.
fn copy_fat_binaries(corpus: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(programs::dir()) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if entry.path().extension() == Some(OsStr::new("fatbin")) {
            fs::copy(entry.path(), corpus.join(entry.file_name()))
                .context("cannot copy a fat binary")?;
        }
    }
    Ok(())
}
