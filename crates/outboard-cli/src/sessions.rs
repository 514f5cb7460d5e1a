//! `outboard sessions`.

mod rates;
pub(crate) mod text;
mod watch;

use std::time::Duration;

use miette::{IntoDiagnostic, Result};
use outboard_supervisor::admin::Held;

pub(crate) use rates::{Rated, RatedSession, Rates};

use crate::admin;
use text::{bytes, columns, duration, rate};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: admin::AdminArgs,
    /// Also show connections that only send queries about devices.
    #[arg(long, short)]
    all: bool,
    /// How many seconds to measure for the rates.
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    over: f64,
    /// Print repeatedly, every so many seconds (default: 2), until interrupted: as wide as the
    /// terminal, else 80 columns.
    #[arg(long, num_args = 0..=1, default_missing_value = "2", value_name = "SECONDS", value_parser = watch::interval, conflicts_with = "over")]
    watch: Option<Duration>,
    /// Print JSON; with --watch, a line with an object each time.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Leaves out what is not to be shown.
    fn chosen(&self, mut rated: Rated) -> Rated {
        if !self.all {
            rated.sessions.retain(|session| session.session.kind == "session");
        }
        rated
    }
}

pub(crate) fn sessions(args: &Args) -> Result<()> {
    if let Some(interval) = args.watch {
        return watch::watch(args, interval);
    }
    let mut admin = args.admin.connect()?;
    let mut listing = || admin.listing().map_err(|error| admin::failed(&error));
    let mut rates = Rates::default();
    rates.take(listing()?);
    std::thread::sleep(Duration::try_from_secs_f64(args.over.clamp(0.01, 60.0)).into_diagnostic()?);
    let rated = args.chosen(rates.take(listing()?));
    let text = if args.json {
        serde_json::to_string_pretty(&rated).into_diagnostic()? + "\n"
    } else {
        table(&rated)
    };
    crate::output::print(&text)
}

/// What each column shows.
const HEAD: [&str; 13] = [
    "SESSION", "OWNER", "TOKEN", "CLIENT", "FROM", "DEVICES", "STATE", "VIA", "AGE", "IDLE",
    "MEMORY", "CALLS/S", "BYTES/S",
];

fn table(rated: &Rated) -> String {
    let text =
        if rated.sessions.is_empty() { "No sessions.\n".to_owned() } else { columns(&rows(rated)) };
    text + &held(rated) + &kept(rated)
}

/// A line for each exclusive device in use.
fn held(rated: &Rated) -> String {
    let line = |held: &Held| {
        format!("Device {} is exclusive: {}.\n", held.device, text::holder(held, "has had it for"))
    };
    rated.held.iter().map(line).collect()
}

/// The head, and a row for each session.
fn rows(rated: &Rated) -> Vec<Vec<String>> {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for rated in &rated.sessions {
        let session = &rated.session;
        rows.push(vec![
            text::short(&session.id).to_owned(),
            session.owner.clone(),
            text::shown(session),
            session.client.clone(),
            session.peer.clone(),
            text::devices(session),
            session.state.clone(),
            if session.transport.is_empty() { "–".to_owned() } else { session.transport.clone() },
            duration(session.age_seconds),
            duration(session.idle_seconds),
            bytes(session.held() as f64),
            rate(rated.calls_per_second),
            bytes(rated.bytes_per_second),
        ]);
    }
    rows
}

/// A line for each place that is kept.
fn kept(rated: &Rated) -> String {
    let mut text = String::new();
    for kept in &rated.kept {
        let devices = match kept.devices.as_slice() {
            [] => "all devices".to_owned(),
            some => {
                format!("device {}", some.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
        };
        let (client, left) = (text::plain(&kept.client), duration(kept.seconds));
        text.push_str(&format!("A place on {devices} is kept for {client}, {left} more.\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use outboard_supervisor::admin::{Listing, Memory, Session};

    use super::*;

    #[test]
    fn who_has_an_exclusive_device_is_told_below() {
        let held = vec![Held { device: 1, owner: "alice\n".into(), seconds: 3700.0 }];
        let rated = Rates::default().take(Listing { held, ..Listing::default() });
        assert_eq!(
            table(&rated),
            "No sessions.\nDevice 1 is exclusive: alice? has had it for 1h01m.\n"
        );
    }

    #[test]
    fn a_session_is_a_line() {
        let session = Session {
            id: "00c0ffee00000000".into(),
            owner: "alice".into(),
            client: "train (17)".into(),
            peer: "10.0.0.7:4711".into(),
            state: "serving".into(),
            kind: "session".into(),
            age_seconds: 3700.0,
            idle_seconds: 0.2,
            memory: vec![Memory { device: 2, context: true, bytes: 3 << 30, peak: 4 << 30 }],
            commands: [("launch".to_owned(), 100)].into(),
            ..Session::default()
        };
        let mut rates = Rates::default();
        rates.take(Listing {
            age_seconds: 1.0,
            sessions: vec![session.clone()],
            ..Listing::default()
        });
        let later = Session { commands: [("launch".to_owned(), 350)].into(), ..session };
        let rated =
            rates.take(Listing { age_seconds: 1.5, sessions: vec![later], ..Listing::default() });
        let text = table(&rated);
        let line = text.lines().nth(1).unwrap();
        let cells: Vec<&str> =
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(
            cells,
            [
                "00c0ffee",
                "alice",
                "–",
                "train (17)",
                "10.0.0.7:4711",
                "2",
                "serving",
                "–",
                "1h01m",
                "0s",
                "3.0 GiB",
                "500",
                "0 B"
            ]
        );
    }
}
