//! `cargo xtask rdma`: the tests of RDMA on devices that the kernel makes of Ethernet (soft-RoCE),
//! in an emulated machine, and how much of such a device's rate a stream has.
//!
//! The machine has two devices on the two ends of each of three virtual cables ([`inside`]). The
//! emulation measures the processor: rates count only against each other.

pub(crate) mod inside;
mod packages;

use anyhow::{Result, bail};

use crate::test::{Count, built};
use crate::util::{cargo, run, step};
use crate::vm::Machine;

/// The packages whose tests are run, and the parts of their tests.
const TESTED: [(&str, &str); 2] = [("outboard-rdma", ""), ("outboard-transport", "rdma::")];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only fetch Debian's packages of verbs and their headers.
    #[arg(long)]
    only_packages: bool,
    /// Only compare rates.
    #[arg(long)]
    only_rates: bool,
    /// Only compare rates with several settings: messages under way, and bytes of a packet.
    #[arg(long)]
    only_shapes: bool,
    /// Only run whole sessions.
    #[arg(long)]
    only_sessions: bool,
    /// Only run the tests of verbs and streams.
    #[arg(long)]
    only_units: bool,
    /// Only run tests of sessions whose names have one of these in them.
    #[arg(long)]
    named: Vec<String>,
}

/// What this program runs as inside the machine.
const INSIDE: &str = "rdma-inside";

/// A step of `cargo xtask test`. Without the headers, the test that needs them says that it is
/// skipped.
pub(crate) fn attempt() -> Count {
    match packages::ensure() {
        Ok(()) => Count::ONE,
        Err(error) => Count::skipped(format!("rdma: Debian's packages cannot be had: {error:#}")),
    }
}

pub(crate) fn run_all(args: &Args) -> Result<()> {
    packages::ensure()?;
    if args.only_packages {
        return Ok(());
    }
    step("building the tests");
    let mut command = vec![std::env::current_exe()?.display().to_string(), INSIDE.to_owned()];
    let all = !(args.only_rates || args.only_shapes || args.only_sessions || args.only_units);
    if all || args.only_units {
        for (package, part) in TESTED {
            for program in built(&["--package", package])? {
                command.push(format!("{part}={}", program.display()));
            }
        }
    }
    if all || args.only_sessions {
        for program in built(&["--package", "outboard-e2e", "--test", "all"])? {
            command.push(format!("{}={}", inside::SESSIONS, program.display()));
        }
    }
    command.extend(args.named.iter().flat_map(|name| ["--named".to_owned(), name.clone()]));
    if all || args.only_rates || args.only_shapes {
        command.push(if args.only_shapes { "--shapes" } else { "--rates" }.to_owned());
        let example = ["--package", "outboard-transport", "--example", "rdma-bandwidth"];
        run(cargo().arg("build").args(example))?;
    }
    let machine = Machine { memory: 4096, limit: 1500, cable: true, ..Machine::default() };
    match machine.run(&command)? {
        0 => Ok(()),
        status => bail!("the tests of RDMA failed in the machine (status {status})"),
    }
}
