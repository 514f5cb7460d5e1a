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
mod pool;
mod program;
mod rdma;
mod server;
mod vsock;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use miette::{IntoDiagnostic, Result};
use outboard_client::target::Targets;

use crate::pool::access as broker;
use crate::{config, credentials, output, whoami};
use finding::Level;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The servers to reach, HOST[:PORT],… Without it OUTBOARD_SERVER, or the configuration, or
    /// this machine.
    #[arg(long)]
    server: Option<Targets>,
    #[command(flatten)]
    credentials: credentials::Args,
    #[command(flatten)]
    pool: broker::Args,
    /// Check the pool, take a lease with so many devices, and check the way to their servers.
    #[arg(long, value_name = "N", conflicts_with = "server", help_heading = "Pool")]
    gpus: Option<u32>,
    /// Print JSON.
    #[arg(long, global = true)]
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
    let names_server = args.server.is_some() || config::is_server_named();
    let is_pool = args.gpus.is_some() || args.pool.pool.is_some() || !names_server;
    if args.role.is_none() && args.program.is_empty() && is_pool && args.pool.is_set() {
        return of_pool(&args);
    }
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

fn of_pool(args: &Args) -> Result<()> {
    let report = pool::check(&args.pool);
    let mut is_well = report.worst != Level::Fail;
    let mut leased = String::new();
    if let Some(gpus) = args.gpus.filter(|_| is_well) {
        (leased, is_well) = pool::with_lease(&args.pool, gpus, args.json)?;
    }
    let text = match (args.json, args.gpus) {
        (true, Some(_)) => whoami::json(&pool::joined(&report, &leased)?)?,
        (true, None) => whoami::json(&report)?,
        (false, Some(_)) => format!("{}\n{leased}", report.text()),
        (false, None) => {
            report.text()
                + "`outboard doctor --gpus 1` takes a lease and checks the way to its server.\n"
        }
    };
    output::print(&text)?;
    if !is_well {
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
