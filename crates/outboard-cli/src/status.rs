//! `outboard status`: which servers and which pool are in use, who one is there, and until when.

use std::path::PathBuf;

use clap::Command;
use miette::Result;
use outboard_broker_client::Settings;
use outboard_client::target::{Target, Targets, VARIABLE};
use outboard_transport::Endpoint;
use serde::Serialize;
use serde_json::Value;

use crate::at_once::at_once;
use crate::config::context;
use crate::failure::Failure;
use crate::output::print;
use crate::pool::access;
use crate::sessions::text;
use crate::whoami;
use crate::{config, probe};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A server or a pool, and what came of asking.
#[derive(Serialize)]
struct Row {
    /// `server` for those in use, `login` for others that a login has kept, or `pool`.
    what: &'static str,
    place: String,
    /// As whom the server or broker knows this client.
    #[serde(skip)]
    who: String,
    /// The devices that it offers, as a sentence says it.
    #[serde(skip)]
    has: String,
    answer: Option<Value>,
    problem: Option<Value>,
    #[serde(skip)]
    warning: Option<String>,
}

pub(crate) fn status(args: &Args, chosen: Option<PathBuf>, command: Command) -> Result<()> {
    let settings = context::settings(chosen, &config::keys::with_environment(command))?;
    let is_set = std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty());
    let in_use = if is_set { Some(probe::servers(None)?) } else { None };
    let used: Vec<Target> = in_use.iter().flat_map(Targets::servers).cloned().collect();
    let mut wanted: Vec<(&'static str, Target)> =
        used.iter().map(|target| ("server", target.clone())).collect();
    for own in settings.iter().flat_map(|settings| &settings.servers) {
        let targets: Targets = own.name.parse().map_err(Failure::from)?;
        let others = targets.servers().iter();
        let others = others.filter(|other| used.iter().all(|used| used.address != other.address));
        wanted.extend(others.map(|other| ("login", other.clone())));
    }
    let mut rows = at_once(&wanted, |(what, target)| row(what, target));
    let pool = Settings::from_env();
    if let Some(url) = &pool.url {
        let reached = access::to(&pool).and_then(|broker| whoami::pool(&broker));
        rows.push(match reached {
            Ok(pool) => Row {
                answer: serde_json::to_value(&pool).ok(),
                ..Row::new("pool", url.clone(), pool.who(), pool.what())
            },
            Err(failure) => Row::failed("pool", url.clone(), &failure),
        });
    }
    let context = config::context().unwrap_or(context::DEFAULT);
    if args.json {
        let all = serde_json::json!({ "context": context, "places": rows });
        print(&whoami::json(&all)?)?;
    } else {
        let mut lines = vec![cells(["context", context, "", ""])];
        lines.extend(rows.iter().map(|row| cells([row.what, &row.place, &row.who, &row.has])));
        let mut said = text::columns(&lines);
        if rows.is_empty() {
            said += "No server and no pool is set: `outboard login` keeps one, --server HOST names one.\n";
        }
        print(&said)?;
        for warning in rows.iter().filter_map(|row| row.warning.as_ref()) {
            eprintln!("outboard: {warning}");
        }
    }
    if rows.iter().any(|row| row.problem.is_some()) {
        std::process::exit(1);
    }
    Ok(())
}

fn cells(texts: [&str; 4]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

fn row(what: &'static str, target: &Target) -> Row {
    let place = target.to_string();
    if matches!(target.address, Endpoint::Local | Endpoint::Ssh(_)) {
        return Row::new(what, place, "started for each run".to_owned(), String::new());
    }
    match whoami::server(target) {
        Ok(server) => Row {
            answer: serde_json::to_value(&server).ok(),
            warning: server.warning(&place),
            ..Row::new(what, place, server.who(), server.what())
        },
        Err(failure) => Row::failed(what, place, &failure),
    }
}

impl Row {
    fn new(what: &'static str, place: String, who: String, has: String) -> Row {
        Row { what, place, who, has, answer: None, problem: None, warning: None }
    }

    fn failed(what: &'static str, place: String, failure: &Failure) -> Row {
        let who = format!("{failure} [{}]; {}", failure.code(), failure.help());
        let problem = Some(whoami::problem(failure));
        Row { problem, ..Row::new(what, place, who, String::new()) }
    }
}
