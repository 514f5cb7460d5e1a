//! `cargo xtask clients`: runs the test programs through each kind of client that this machine can
//! have, and writes what came of it into `docs/clients.md`.

mod earlier;
mod over_ssh;
mod page;
mod runs;
mod runtimes;

use anyhow::{Result, bail};

use crate::util::step;
use page::Row;
use runs::Came;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the kinds whose names contain this. The others' rows stay as they are.
    #[arg(long)]
    only: Option<String>,
    /// Run the whole suite of programs, not a choice of it.
    #[arg(long)]
    suite: bool,
}

/// A kind of client, by what the page calls it.
struct Kind {
    name: &'static str,
    how: &'static str,
    run: fn(whole: bool) -> Result<Came>,
}

/// All of them, in the order of the page. To add one is to add an entry.
const KINDS: [Kind; 15] = [
    Kind {
        name: "plain",
        how: "`outboard run` on this machine; compared with the software device in the program's process",
        run: runs::plain,
    },
    Kind {
        name: "server over ssh",
        how: "`--server ssh://gpu1`: Debian's sshd in namespaces of this machine, a server for each program",
        run: over_ssh::run,
    },
    Kind {
        name: "release N−1, server of this source",
        how: "the last release of `api/releases.toml`, built from its commit; TCP, TLS and shared memory",
        run: earlier::client,
    },
    Kind {
        name: "client of this source, release N−1",
        how: "the same with the server of that release",
        run: earlier::server_side,
    },
    Kind {
        name: "runtimes of CUDA 8.0 to 10.2",
        how: "linked into XGBoost of PyPI's wheels of 2018 (8.0, 9.1) and JCuda's libraries of Maven Central (9.2, 10.0, 10.1, 10.2); compared with the software device in the program's process",
        run: runtimes::run,
    },
    Kind {
        name: "aarch64 client, x86-64 server",
        how: "emulated: QEMU's user mode, Debian 13's arm64 packages, NVIDIA's aarch64 runtimes",
        run: runs::arm_client,
    },
    Kind {
        name: "x86-64 client, aarch64 server",
        how: "the server emulated in the same way, with the software device",
        run: runs::arm_server,
    },
    Kind {
        name: "aarch64 client of release N−1, server of this source",
        how: "the client emulated in the same way, with the programs of `cargo xtask mixed`",
        run: earlier::arm_client,
    },
    Kind {
        name: "aarch64 client of this source, server of release N−1",
        how: "the same",
        run: earlier::arm_client_of_this_source,
    },
    Kind {
        name: "client of this source, aarch64 server of release N−1",
        how: "the server emulated, with the software device",
        run: earlier::arm_server,
    },
    Kind {
        name: "client of release N−1, aarch64 server of this source",
        how: "the same",
        run: earlier::arm_server_of_this_source,
    },
    Kind {
        name: "x86-64 with an old glibc",
        how: "Debian 11's files (glibc 2.31) as the root; older ones by their symbols alone",
        run: runs::old_system,
    },
    Kind {
        name: "x86-64 with musl, or no C library",
        how: "an empty root that has the command and nothing else",
        run: runs::empty_system,
    },
    Kind {
        name: "container without flags",
        how: "Debian's podman with its own filter of system calls; [eight containers](containers.md#no-flag-is-needed), eight programs in each",
        run: runs::container,
    },
    Kind {
        name: "Jupyter kernel",
        how: "a kernel of `outboard jupyter install` for each program, which a cell starts; ipykernel of PyPI",
        run: runs::jupyter,
    },
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut failed = Vec::new();
    let is_wanted = |kind: &&Kind| args.only.as_ref().is_none_or(|only| kind.name.contains(only));
    for kind in KINDS.iter().filter(is_wanted) {
        step(kind.name);
        match (kind.run)(args.suite) {
            Ok(came) => {
                let first =
                    came.first.map_or_else(|| "no such program".into(), |first| first.text());
                step(&format!("{}: {}; {first}", kind.name, came.what));
                let row = Row { kind: kind.name, how: kind.how, came: came.what, first };
                // At once: a later kind may take long, or be given up.
                page::write(&row, &KINDS.map(|kind| kind.name), runs::ARM_EXCEPTIONS)?;
            }
            Err(error) => failed.push(format!("{}: {error:#}", kind.name)),
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}
