//! `outboard smi`: the table that people know from `nvidia-smi`, for devices elsewhere.

use miette::Result;
use outboard_client::target::{Target, Targets};
use outboard_pool::api::{LeaseView, PoolView, ServerView};
use outboard_supervisor::admin::Session;
use serde::Serialize;

use crate::admin::AdminArgs;
use crate::at_once::at_once;
use crate::devices::{self, Listing};
use crate::failure::Failure;
use crate::output::print;
use crate::pool::access::{self, failed};
use crate::pool::tables::condition;
use crate::{config, credentials, probe, started, whoami};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The servers, HOST[:PORT],… as `outboard devices` takes them. Without it OUTBOARD_SERVER, or
    /// the configuration; if none is named there, the pool; else this machine.
    #[arg(long, conflicts_with = "pool")]
    server: Option<Targets>,
    #[command(flatten)]
    credentials: credentials::Args,
    #[command(flatten)]
    pool: access::Args,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A server's devices, and the sessions that this user may see.
#[derive(Serialize)]
struct OfServer {
    #[serde(flatten)]
    listing: Listing,
    /// Told only on the server's machine, to its user and root.
    sessions: Option<Vec<Session>>,
}

pub(crate) fn smi(args: &Args) -> Result<()> {
    let is_pool = args.pool.pool.is_some()
        || (args.server.is_none() && !config::is_server_named() && args.pool.is_set());
    if is_pool {
        let view = args.pool.broker()?.pool().map_err(|error| failed(&error))?;
        return print(&if args.json { whoami::json(&view)? } else { of_pool(&view) });
    }
    args.credentials.set();
    let named = probe::servers(args.server.clone())?;
    let (servers, _started) = started::start(named.clone())?;
    let names = named.servers().iter().map(|server| server.address.to_string());
    let all: Vec<_> = servers.servers().iter().zip(names).collect();
    let (mut answered, mut outcome) = (Vec::new(), Ok(()));
    for answer in at_once(&all, |(server, name)| of_server(server, name)) {
        match answer {
            Ok(one) => answered.push(one),
            // The others are shown all the same; the first failure is the command's.
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    let text = match answered.as_slice() {
        _ if !args.json => answered.iter().map(OfServer::table).collect(),
        [one] if all.len() == 1 => whoami::json(one)?,
        several => whoami::json(&several)?,
    };
    if !answered.is_empty() {
        print(&text)?;
    }
    outcome.map_err(miette::Report::from)
}

fn of_server(server: &Target, name: &str) -> Result<OfServer, Failure> {
    let listing = devices::listing(server, name)?;
    let admin = AdminArgs::of(server.clone()).connect().ok();
    let sessions = admin.and_then(|mut admin| admin.listing().ok()).map(|found| found.sessions);
    Ok(OfServer { listing, sessions })
}

/// What is not known.
const UNKNOWN: &str = "N/A";

/// A figure with its unit.
fn figure<T: std::fmt::Display>(number: Option<T>, unit: &str) -> String {
    number.map_or(UNKNOWN.to_owned(), |number| format!("{number}{unit}"))
}

fn mebibytes(bytes: u64) -> String {
    format!("{}MiB", bytes >> 20)
}

impl OfServer {
    fn table(&self) -> String {
        let Listing { server, software, driver, driver_version, transport, devices } =
            &self.listing;
        let (major, minor) = (driver_version / 1000, driver_version % 1000 / 10);
        let title = format!(
            "Outboard {software}   {server} over {transport}   Driver: {driver}   CUDA Version: {major}.{minor}"
        );
        let device = |row: &devices::Row| {
            let gauge = &row.gauge;
            let used = gauge.memory_used_bytes.map_or(UNKNOWN.to_owned(), mebibytes);
            vec![
                gauge.index.to_string(),
                gauge.name.clone(),
                figure(gauge.temperature, "C"),
                figure(gauge.watts.map(|watts| watts.round()), "W"),
                format!("{used} / {}", mebibytes(gauge.memory_bytes)),
                figure(gauge.utilisation, "%"),
                figure(row.sessions, ""),
            ]
        };
        let heads = ["GPU", "Name", "Temp", "Power", "Memory-Usage", "GPU-Util", "Sessions"];
        let text = boxed(&title, &heads, &devices.iter().map(device).collect::<Vec<_>>());
        let Some(sessions) = &self.sessions else { return text };
        let mut rows = Vec::new();
        for session in sessions {
            for memory in session.memory.iter().filter(|memory| memory.context) {
                rows.push(vec![
                    memory.device.to_string(),
                    session.id.clone(),
                    session.owner.clone(),
                    session.client.clone(),
                    mebibytes(memory.bytes),
                ]);
            }
        }
        let heads = ["GPU", "Session", "Owner", "Program", "GPU Memory"];
        text + &boxed_or_none("Sessions", &heads, &rows)
    }
}

fn of_pool(view: &PoolView) -> String {
    if view.servers.is_empty() {
        return "The pool has no servers yet; `outboard serve --pool URL` makes one of it.\n"
            .to_owned();
    }
    let servers = view.servers.iter().map(|server| of_its_server(server, &view.leases));
    let text: String = servers.collect();
    let mut rows = Vec::new();
    for lease in view.leases.iter().filter(|lease| lease.over.is_none()) {
        let devices: Vec<String> =
            lease.devices.iter().map(|granted| place(view, granted)).collect();
        rows.push(vec![
            lease.number.to_string(),
            lease.owner.to_string(),
            devices.join(" "),
            lease.sessions.to_string(),
            mebibytes(lease.used_bytes),
        ]);
    }
    let heads = ["Lease", "Owner", "Devices", "Sessions", "GPU Memory"];
    text + &boxed_or_none("Leases", &heads, &rows)
}

/// A table, or that there is nothing for it.
fn boxed_or_none(title: &str, heads: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return format!("No {}.\n", title.to_lowercase());
    }
    boxed(title, heads, rows)
}

/// `SERVER/INDEX` of a device.
fn place(view: &PoolView, granted: &outboard_pool::words::Granted) -> String {
    let server = view.servers.iter().find(|server| server.name == granted.server);
    let index = server
        .and_then(|server| server.devices.iter().position(|device| device.uuid == granted.device));
    match index {
        Some(index) => format!("{}/{index}", granted.server),
        None => granted.server.to_string(),
    }
}

fn of_its_server(server: &ServerView, leases: &[LeaseView]) -> String {
    let title = format!(
        "{} at {}   Outboard {}   Driver: {}   {}",
        server.name,
        server.address,
        server.release,
        server.driver,
        condition(server)
    );
    let rows: Vec<Vec<String>> = server
        .devices
        .iter()
        .enumerate()
        .map(|(index, device)| {
            let owner = |lease: &LeaseView| {
                device.leases.contains(&lease.number).then(|| lease.owner.to_string())
            };
            let owners: Vec<String> = leases.iter().filter_map(owner).collect();
            let given = device.memory_bytes.saturating_sub(device.free_bytes);
            vec![
                index.to_string(),
                device.model.clone(),
                format!("{} / {}", mebibytes(given), mebibytes(device.memory_bytes)),
                format!("{}%", device.load_percent),
                if owners.is_empty() { "-".to_owned() } else { owners.join(", ") },
            ]
        })
        .collect();
    boxed(&title, &["GPU", "Name", "Memory leased", "GPU-Util", "Leased to"], &rows)
}

/// A table in a frame.
fn boxed(title: &str, heads: &[&str], rows: &[Vec<String>]) -> String {
    let letters = |text: &str| text.chars().count();
    let mut widths: Vec<usize> = heads.iter().map(|head| letters(head)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = letters(cell).max(*width);
        }
    }
    let inner = |widths: &[usize]| widths.iter().sum::<usize>() + 3 * (widths.len() - 1);
    let lack = letters(title).saturating_sub(inner(&widths));
    // The name takes what the title needs.
    if let Some(name) = widths.get_mut(1) {
        *name += lack;
    }
    let whole = inner(&widths);
    let rule = |between: char, line: char| {
        let parts: Vec<String> =
            widths.iter().map(|width| line.to_string().repeat(width + 2)).collect();
        format!("+{}+\n", parts.join(&between.to_string()))
    };
    let line = |cells: &[String]| {
        let cells: Vec<String> =
            widths.iter().zip(cells).map(|(width, cell)| format!(" {cell:width$} ")).collect();
        format!("|{}|\n", cells.join("|"))
    };
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let mut text = format!("+{}+\n| {title:whole$} |\n{}", "-".repeat(whole + 2), rule('+', '-'));
    text += &(line(&heads) + &rule('+', '='));
    text.extend(rows.iter().map(|row| line(row)));
    text + &rule('+', '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gauges::Gauge;

    #[test]
    fn a_table_is_as_wide_as_its_title() {
        let rows = vec![vec!["0".to_owned(), "H200".to_owned()]];
        let text = boxed("a title that is longer", &["GPU", "Name"], &rows);
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        assert_eq!(text.lines().count(), 7, "{text}");
    }

    #[test]
    fn what_is_not_known_is_said_to_be_so() {
        let gauge = Gauge {
            name: "NVIDIA H200".into(),
            memory_bytes: 141 << 30,
            temperature: Some(34),
            ..Gauge::default()
        };
        let row = devices::Row { gauge, sessions: Some(2), sharing: None, held: None };
        let listing = Listing {
            server: "gpu1:9470".into(),
            software: "0.1.0".into(),
            driver: "libcuda.so.1".into(),
            driver_version: 13000,
            transport: "tcp",
            devices: vec![row],
        };
        let text = OfServer { listing, sessions: Some(Vec::new()) }.table();
        for part in ["CUDA Version: 13.0", "NVIDIA H200", "34C", "N/A / 144384MiB", "No sessions"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
