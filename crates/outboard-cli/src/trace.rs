//! `outboard trace`.

use std::path::PathBuf;

use miette::{IntoDiagnostic, Result};

use crate::admin;
use crate::config::store;
use crate::time;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session: the first digits of its number, at least four.
    session: String,
    /// Seconds to record, at most 600. The trace ends early if the session does.
    #[arg(long, short, default_value_t = 10.0, value_name = "SECONDS", value_parser = time::fraction)]
    seconds: f64,
    /// The file to write, in OTLP's JSON, which the OpenTelemetry Collector reads (receiver
    /// `otlpjsonfile`); standard output without it.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    admin: admin::AdminArgs,
}

pub(crate) fn trace(args: Args) -> Result<()> {
    let trace = args
        .admin
        .connect()?
        .trace(args.session, args.seconds)
        .map_err(|error| admin::failed(&error))?;
    let text = serde_json::to_string(&trace).into_diagnostic()? + "\n";
    match args.output {
        Some(path) => Ok(store::output(&path, &text)?),
        None => crate::output::print(&text),
    }
}
