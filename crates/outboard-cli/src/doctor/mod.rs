//! `outboard doctor`: checks a client or a server, says what is wrong, how to mend it, and what to
//! expect.

mod access;
mod child;
mod client;
mod driver;
mod finding;
mod ivshmem;
mod link;
mod machine;
mod program;
mod rdma;
mod server;
mod vsock;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use miette::{IntoDiagnostic, Result};
use outboard_client::target::Targets;

use crate::{credentials, output};
use finding::Level;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The servers to reach, HOST[:PORT],… Without it OUTBOARD_SERVER, or the configuration, or
    /// this machine.
    #[arg(long)]
    server: Option<Targets>,
    #[command(flatten)]
    credentials: credentials::Args,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    role: Option<Role>,
    /// Check whether this program would load Outboard's library, and say why not. It is not
    /// started.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// How long a small process may take.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(clap::Subcommand)]
enum Role {
    /// Check this machine as a server: its driver, limits, ports and folders.
    Serve {
        /// Flags that `outboard serve` is going to have.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS OF SERVE")]
        flags: Vec<OsString>,
    },
}

/// A check that runs in a child process.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[command(subcommand)]
    trial: Trial,
}

#[derive(clap::Subcommand)]
enum Trial {
    /// Use a driver library.
    Driver { library: PathBuf },
    /// Say which driver library the loader finds.
    Loader,
    /// Measure the way to the server.
    Link,
    /// Make a user namespace.
    Namespace,
}

pub(crate) fn doctor(args: Args) -> Result<()> {
    let report = match args.role {
        None => {
            args.credentials.set();
            match args.program.as_slice() {
                [] => client::check(args.server)?,
                line => client::check_program(args.server, line)?,
            }
        }
        Some(Role::Serve { flags }) => server::check(flags)?,
    };
    let text = if args.json {
        serde_json::to_string_pretty(&report).into_diagnostic()? + "\n"
    } else {
        report.text()
    };
    output::print(&text)?;
    if report.worst == Level::Fail {
        std::process::exit(1);
    }
    Ok(())
}

pub(crate) fn attempt(args: TrialArgs) -> Result<()> {
    match args.trial {
        Trial::Driver { library } => output::print(&driver::describe(&library)),
        Trial::Loader => output::print(&client::loaded()),
        Trial::Link => output::print(&link::measured()),
        Trial::Namespace => machine::make_namespace(),
    }
}
