//! `cargo xtask miri`: runs tests in Miri, an interpreter that finds undefined behaviour.
//!
//! Miri is a part of the nightly compiler, which nothing else here needs. It knows neither most
//! system calls nor foreign functions, and is some hundred times slower than the processor; tests
//! that it cannot run have `cfg_attr(miri, ignore = "why")`.

use crate::util::{self, root, step};
use anyhow::{Result, bail};
use std::process::{Command, Stdio};

/// The crates, each with the only modules whose tests are run, by the beginnings of their names; no
/// name means all tests.
const CRATES: &[(&str, &[&str])] = &[
    ("outboard-ranges", &[]),
    ("outboard-wire", &[]),
    ("outboard-session", &[]),
    ("outboard-nvml", &[]),
    ("outboard-image", &[]),
    ("outboard-ptx", &[]),
    ("outboard-transport", &["address::", "host::"]),
    ("outboard-front", &["graph::mirror::", "image::"]),
];

/// How many inputs each property is tried with, instead of 256.
const CASES: &str = "4";

/// The crate each of whose tests has a process of its own, which lives as long as the thread: Miri
/// would call it leaked.
const LEAKS: &str = "outboard-front";

/// What the nightly compiler is called.
const TOOLCHAIN: &str = "nightly";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One crate, such as outboard-wire. All that Miri can run by default.
    package: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<_> = CRATES
        .iter()
        .filter(|(name, _)| args.package.as_deref().is_none_or(|wanted| wanted == *name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = CRATES.iter().map(|(name, _)| *name).collect();
        bail!("the crates are {}", names.join(", "));
    }
    require_miri()?;
    util::for_each(&chosen, util::processors(), |(package, modules)| {
        step(&format!("running the tests of {package} in Miri"));
        util::run(&mut tests(package, modules))
    })
}

/// The command that runs a crate's tests.
fn tests(package: &str, modules: &[&str]) -> Command {
    let mut command = cargo();
    command.current_dir(root()).args(["miri", "test", "--quiet", "--lib", "-p", package, "--"]);
    command.args(modules);
    // What a test may look at, such as the clock, it may look at here; properties are tried with
    // other inputs each time.
    let leaks = if package == LEAKS { " -Zmiri-ignore-leaks" } else { "" };
    command.env("MIRIFLAGS", format!("-Zmiri-disable-isolation{leaks}"));
    command.env("PROPTEST_CASES", CASES);
    command.env("CARGO_TARGET_DIR", util::target_dir().join("miri"));
    command
}

/// The nightly compiler's Cargo. Whoever runs this program has Rustup's, which finds it by name;
/// the one that compiled this program is another compiler's.
fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.arg(format!("+{TOOLCHAIN}"));
    // Rustup takes the compiler that is named there, not the one that is asked for.
    for name in ["RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC", "CARGO"] {
        command.env_remove(name);
    }
    command
}

fn require_miri() -> Result<()> {
    let mut version = cargo();
    version.args(["miri", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !version.status().is_ok_and(|status| status.success()) {
        bail!(
            "Miri is not installed; install it with:\n    rustup toolchain install {TOOLCHAIN} \
             --component miri --component rust-src"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_modules_are_there() {
        for (package, modules) in CRATES {
            let source = root().join("crates").join(package).join("src");
            assert!(source.is_dir(), "{package}");
            for module in *modules {
                let path = module.trim_end_matches("::").replace("::", "/");
                let found = [format!("{path}.rs"), format!("{path}/mod.rs")]
                    .iter()
                    .any(|file| fs::exists(source.join(file)).is_ok_and(|exists| exists));
                assert!(found, "{package} has a module {module}");
            }
        }
    }

    #[test]
    fn the_command_asks_the_nightly_compiler() {
        let shown = util::show(&tests("outboard-image", &["memory::"]));
        assert_eq!(shown, "cargo +nightly miri test --quiet --lib -p outboard-image -- memory::");
    }
}
