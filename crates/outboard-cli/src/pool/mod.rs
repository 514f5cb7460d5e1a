//! `outboard pool`: what a broker knows.

pub(crate) mod access;
pub(crate) mod asking;
mod csv;
pub(crate) mod invitation;
pub(crate) mod shown;
pub(crate) mod tables;
mod usage;

use clap::Subcommand;
use miette::{IntoDiagnostic, Result};
use outboard_broker_client::{Blocking, Method};
use outboard_pool::api::{PoolView, Why};
use outboard_pool::words::{LeaseNumber, ServerName};
use serde::Serialize;

use crate::output::print;
use access::failed;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: access::Args,
    #[command(subcommand)]
    what: Option<What>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Print comma-separated values.
    #[arg(long, global = true, conflicts_with = "json")]
    csv: bool,
}

#[derive(Subcommand, Clone)]
enum What {
    /// The servers' devices, and what of them is free. This is the default.
    Devices,
    /// Who has which devices.
    Leases,
    /// Who waits, and for what.
    Queue,
    /// What owners have, and what they may have.
    Owners,
    /// What was had, by day.
    Usage {
        /// Add it up by owner, group or model.
        #[arg(long, value_name = "owner|group|model", hide_possible_values = true)]
        by: Option<usage::By>,
    },
    /// How a lease came about, and how it stands.
    Why {
        /// Its number.
        lease: u64,
    },
    /// Forget a server, as an admin: its name is free for another key, and its leases are over.
    Forget {
        /// Its name.
        server: ServerName,
    },
    /// End a lease: one's own, or as an admin anybody's.
    End {
        /// Its number.
        lease: u64,
    },
}

/// How the answer is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Csv,
}

/// Rows of text under their headings.
struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// What is said if there are none.
    none: &'static str,
}

pub(crate) fn pool(args: &Args) -> Result<()> {
    let form = match (args.json, args.csv) {
        (true, _) => Form::Json,
        (_, true) => Form::Csv,
        _ => Form::Text,
    };
    let broker = args.access.broker()?;
    match args.what.clone().unwrap_or(What::Devices) {
        What::Devices => {
            let view = view(&broker)?;
            show(form, &view.servers, || tables::devices(&view))
        }
        What::Leases => {
            let view = view(&broker)?;
            show(form, &view.leases, || tables::leases(&view))
        }
        What::Queue => {
            let view = view(&broker)?;
            show(form, &view.queue, || tables::queue(&view))
        }
        What::Owners => {
            let view = view(&broker)?;
            show(form, &view.owners, || tables::owners(&view))
        }
        What::Usage { by } => {
            let usage = broker.usage().map_err(|error| failed(&error))?;
            let Some(by) = by else {
                return show(form, &usage, || usage::table(&usage));
            };
            let sums = usage::Sums::of(&usage, by);
            show(form, &sums.json(), || sums.table())
        }
        What::Why { lease } => {
            let path = format!("/v1/leases/{lease}/why");
            let why: Why = broker.ask(Method::GET, &path).map_err(|error| failed(&error))?;
            show(form, &why, || tables::why(&why))
        }
        What::Forget { server } => {
            let path = format!("/v1/servers/{server}");
            broker.bytes(Method::DELETE, &path).map_err(|error| failed(&error))?;
            print(&format!("The pool has no server {server} any more; its name is free.\n"))
        }
        What::End { lease } => {
            end(&broker, LeaseNumber(lease)).map_err(|error| failed(&error))?;
            print(&format!("Lease {lease} is over; its servers hear of it within a second.\n"))
        }
    }
}

/// Gives a lease back.
pub(crate) fn end(
    broker: &Blocking,
    lease: LeaseNumber,
) -> Result<(), outboard_broker_client::AskError> {
    broker.bytes(Method::DELETE, &format!("/v1/leases/{lease}")).map(drop)
}

fn view(broker: &Blocking) -> Result<PoolView> {
    Ok(broker.pool().map_err(|error| failed(&error))?)
}

fn show(form: Form, all: &impl Serialize, table: impl FnOnce() -> Table) -> Result<()> {
    match form {
        Form::Json => print(&(serde_json::to_string_pretty(all).into_diagnostic()? + "\n")),
        Form::Csv => print(&csv::text(&table())),
        Form::Text => print(&tables::text(&table())),
    }
}
