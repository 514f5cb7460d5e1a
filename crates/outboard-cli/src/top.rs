//! `outboard top`: the sessions of a server, or a pool, live.

mod bar;
mod look;
mod pool;
mod recent;
mod screen;
mod series;
mod server;
mod state;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use miette::{IntoDiagnostic, Result};

use crate::admin;
use crate::pool::access;
use screen::Manner;
use state::Sort;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: admin::AdminArgs,
    /// Seconds between two updates.
    #[arg(long, short, default_value_t = 1.0, value_name = "SECONDS")]
    interval: f64,
    /// The order of sessions.
    #[arg(long, default_value = "calls", value_name = "calls|bytes|memory|waiting|age|owner")]
    sort: Sort,
    /// Print once and end.
    #[arg(long)]
    once: bool,
    /// Print JSON, an object for each update, instead of drawing.
    #[arg(long)]
    json: bool,
    /// End after this many updates.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Show a pool: its devices, leases and queue. The broker is https://HOST[:PORT]; without a
    /// value it is that of OUTBOARD_POOL.
    #[arg(long, value_name = "URL", num_args = 0..=1, help_heading = "Pool")]
    pool: Option<Option<String>>,
    #[command(flatten)]
    shown: access::Shown,
}

/// Without a terminal, a first look comes after a part of a second: rates are of a while.
const FIRST_LOOK: Duration = Duration::from_millis(500);

pub(crate) fn top(args: &Args) -> Result<()> {
    let interval =
        Duration::try_from_secs_f64(args.interval.clamp(0.1, 3600.0)).into_diagnostic()?;
    let mut manner = Manner {
        interval,
        looks: args.count,
        once: args.once,
        json: args.json,
        before_first: Duration::ZERO,
    };
    if let Some(url) = &args.pool {
        let broker = args.shown.broker(url.as_deref())?;
        return screen::show(&mut pool::Pool::connect(broker, interval)?, &manner);
    }
    manner.before_first = if args.once { interval.min(FIRST_LOOK) } else { interval };
    let is_printed = args.once || args.json || !std::io::stdout().is_terminal();
    let mut server = server::Server::connect(&args.admin, args.sort, interval, is_printed)?;
    screen::show(&mut server, &manner)
}
