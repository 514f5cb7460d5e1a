//! `cargo xtask ktls`: tests of records of TLS that the kernel makes, in an emulated machine.

pub(crate) mod inside;

use anyhow::{Result, bail};

use crate::test::built;
use crate::util::step;
use crate::vm::Machine;

/// Test programs that cargo builds, and the part of their tests that is run. Those of programs need
/// `cargo xtask stage` and `cargo xtask programs`.
const TESTED: [(&[&str], &str); 3] = [
    (&["--package", "outboard-transport", "--lib"], "tls::"),
    (&["--package", "outboard-supervisor", "--test", "serving"], "by_the_kernel"),
    (&["--package", "outboard-e2e", "--test", "all"], "ktls::"),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only run tests whose names have this in them.
    #[arg(long)]
    named: Option<String>,
    /// Only run the tests of this package.
    #[arg(long)]
    package: Option<String>,
}

/// What this program runs as inside the machine.
const INSIDE: &str = "ktls-inside";

pub(crate) fn run(args: &Args) -> Result<()> {
    step("building the tests");
    let mut command = vec![std::env::current_exe()?.display().to_string(), INSIDE.to_owned()];
    for (package, part) in TESTED {
        if args.package.as_deref().is_some_and(|wanted| package[1] != wanted) {
            continue;
        }
        for program in built(package)? {
            let part = args.named.as_deref().unwrap_or(part);
            command.push(format!("{part}={}", program.display()));
        }
    }
    match (Machine { memory: 4096, limit: 1500, ..Machine::default() }).run(&command)? {
        0 => Ok(()),
        status => bail!("the tests of TLS failed in the machine (status {status})"),
    }
}
