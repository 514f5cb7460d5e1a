//! `outboard slurm sync`: Slurm's licences follow the pool, no lease outlives its job, and no job its
//! lease.
//!
//! Epilogs end leases. What they could not end, since they were not run or the broker was away, is
//! ended here. A job that gets more time gets its lease prolonged ([`super::prolonging`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use miette::Result;
use outboard_auth::files::write_secret_as;
use outboard_broker_client::{Blocking, Method};
use outboard_pool::api::{LeaseView, Me, PoolView};
use outboard_pool::words::{Condition, Health, LeaseNumber, OwnerName};

use super::controller::Jobs;
use super::prolonging::Prolonger;
use super::{LICENSE, controller, job, licenses};
use crate::failure::Failure;
use crate::pool::access::{self, failed};
use crate::pool::end;
use crate::time::Span;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    access: access::Args,
    /// The file with the line `Licenses=`, which slurm.conf includes.
    #[arg(
        long,
        env = "OUTBOARD_SLURM_LICENSES",
        hide_env_values = true,
        default_value = "/etc/slurm/outboard-licenses.conf",
        value_name = "FILE"
    )]
    licenses: PathBuf,
    /// Other licences of the cluster for the same line, such as `matlab:10`: Slurm reads one only.
    #[arg(long, env = "OUTBOARD_SLURM_OTHER_LICENSES", value_name = "LIST")]
    other_licenses: Option<String>,
    /// How often to look.
    #[arg(long, default_value = "3s", value_name = "TIME")]
    every: Span,
    /// Look once, and fail if something cannot be done.
    #[arg(long)]
    once: bool,
}

pub(super) fn sync(args: &Args) -> Result<()> {
    let broker = args.access.broker()?;
    let (mut seen, mut prolonger) = (Seen::default(), Prolonger::default());
    if args.once {
        return Ok(look(args, &broker, &mut seen, &mut prolonger)?);
    }
    let every: SignedDuration = args.every.0;
    let mut told = None;
    loop {
        let looked = look(args, &broker, &mut seen, &mut prolonger);
        let failure = looked.err().map(|failure| failure.to_string());
        // Once, not every few seconds.
        if failure != told {
            match &failure {
                Some(failure) => eprintln!("outboard: {failure}"),
                None => eprintln!("outboard: all is well again"),
            }
            told = failure;
        }
        std::thread::sleep(every.unsigned_abs().max(Duration::from_millis(100)));
    }
}

/// How many devices there were of late. A broker that was started anew hears of its servers some
/// seconds later: fewer are believed the third time.
#[derive(Default)]
struct Seen([usize; 2]);

impl Seen {
    fn most_of_late(&mut self, now: usize) -> usize {
        let [before, last] = self.0;
        self.0 = [last, now];
        now.max(last).max(before)
    }
}

/// Compares the two once.
fn look(
    args: &Args,
    broker: &Blocking,
    seen: &mut Seen,
    prolonger: &mut Prolonger,
) -> Result<(), Failure> {
    let me: Me = broker.ask(Method::GET, "/v1/me").map_err(|error| failed(&error))?;
    let pool = broker.pool().map_err(|error| failed(&error))?;
    let number = seen.most_of_late(devices_for(&pool, &me.owner));
    let line = licenses::line(args.other_licenses.as_deref(), LICENSE, number);
    let written = follow(&args.licenses, &line);
    // The leases are older than this list of jobs: whose job is not in it, has none any more.
    let cluster = controller::cluster()?;
    let live = controller::live_jobs()?;
    let leases = of_jobs(&pool.leases, &me.owner, &job::prefix(&cluster));
    for number in orphans(&leases, &live) {
        end(broker, number).map_err(|error| failed(&error))?;
        eprintln!("outboard: lease {number} is ended: its job is over");
    }
    prolonger.look(broker, &leases, &live)?;
    written
}

/// Has Slurm hear of a new number of licences.
fn follow(path: &Path, line: &str) -> Result<(), Failure> {
    let text = format!("# Written by `outboard slurm sync`.\n{line}");
    if std::fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    write_secret_as(path, text.as_bytes(), 0o644)
        .map_err(|error| Failure::file("write", path, &error))?;
    let told = controller::reconfigure();
    if told.is_err() {
        // Else nobody would tell it once it is there again.
        let _ = std::fs::write(path, format!("{text}# Slurm has not heard of it yet.\n"));
    }
    told?;
    eprintln!("outboard: {}", line.trim_end());
    Ok(())
}

/// The devices that jobs have or could have. One that another asker has is none, nor is one that
/// cannot be leased now.
fn devices_for(pool: &PoolView, me: &OwnerName) -> usize {
    let lease = |number: &LeaseNumber| pool.leases.iter().find(|lease| lease.number == *number);
    let counts = |server: &outboard_pool::api::ServerView| {
        // A server that owes an answer owes it for a second or so: its devices come back.
        let is_ready = server.condition == Condition::Ready
            || (server.condition == Condition::Draining && server.because.is_some());
        let counts = |device: &&outboard_pool::api::DeviceView| {
            let mut leases = device.leases.iter().filter_map(lease);
            let mut going = leases.clone().filter(|lease| lease.over.is_none());
            if leases.any(|lease| lease.asked_by != *me && lease.over.is_none()) {
                return false;
            }
            going.next().is_some() || (is_ready && device.health == Health::Well)
        };
        server.devices.iter().filter(counts).count()
    };
    pool.servers.iter().map(counts).sum()
}

/// Leases for jobs of a cluster that are not over, each with its job.
fn of_jobs<'a>(leases: &'a [LeaseView], me: &OwnerName, prefix: &str) -> Vec<(u32, &'a LeaseView)> {
    let of_job = |lease: &'a LeaseView| {
        let purpose = lease.purpose.as_ref().filter(|_| lease.asked_by == *me)?;
        let job = purpose.as_str().strip_prefix(prefix)?.parse().ok()?;
        lease.over.is_none().then_some((job, lease))
    };
    leases.iter().filter_map(of_job).collect()
}

/// Those whose jobs are not there.
fn orphans(leases: &[(u32, &LeaseView)], live: &Jobs) -> Vec<LeaseNumber> {
    let orphans = leases.iter().filter(|(job, _)| !live.contains_key(job));
    orphans.map(|(_, lease)| lease.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn device(uuid: &str, leases: &[u64], health: &str) -> serde_json::Value {
        json!({
            "uuid": uuid, "model": "Played", "capability": {"major": 9, "minor": 0},
            "memory_bytes": 1 << 30, "free_bytes": 0, "free_percent": 0, "load_percent": 0, "health": health,
            "leases": leases,
        })
    }

    fn server(
        name: &str,
        condition: &str,
        because: Option<&str>,
        devices: &[serde_json::Value],
    ) -> serde_json::Value {
        json!({
            "name": name, "address": "x:1", "release": "0", "driver": "1", "labels": {},
            "condition": condition, "because": because, "heard": null, "devices": devices,
        })
    }

    fn lease(
        number: u64,
        asked_by: &str,
        purpose: Option<&str>,
        over: Option<&str>,
    ) -> serde_json::Value {
        json!({
            "number": number, "owner": "ada", "group": "everybody", "asked_by": asked_by,
            "purpose": purpose, "since": "2026-01-01T00:00:00Z",
            "expires": "2026-01-01T00:00:00Z", "renewable_until": "2026-01-01T00:00:00Z",
            "sessions": 0, "used_bytes": 0, "over": over, "devices": [],
        })
    }

    fn pool(servers: &[serde_json::Value], leases: &[serde_json::Value]) -> PoolView {
        let all = json!({
            "release": "0", "policy": "pack", "servers": servers, "leases": leases, "queue": [],
            "owners": [],
        });
        serde_json::from_value(all).expect("it is a view of a pool")
    }

    fn me() -> OwnerName {
        "slurm".parse().unwrap()
    }

    #[test]
    fn fewer_are_believed_the_third_time() {
        let mut seen = Seen::default();
        let told = [3, 0, 0, 3, 2, 2, 2, 4].map(|now| seen.most_of_late(now));
        assert_eq!(told, [3, 3, 3, 3, 3, 3, 2, 4]);
    }

    #[test]
    fn devices_that_jobs_have_or_could_have_count() {
        let leases = [
            lease(1, "slurm", Some("slurm.blue.1"), None),
            lease(2, "ada", None, None),
            lease(3, "ada", None, Some("given back")),
        ];
        let all = |condition, because| {
            let devices = [
                device("free", &[], "well"),
                device("ours", &[1], "well"),
                device("anothers", &[2], "well"),
                device("free-in-a-second", &[3], "well"),
                device("ill", &[], "ill"),
            ];
            devices_for(&pool(&[server("a", condition, because, &devices)], &leases), &me())
        };
        assert_eq!(all("ready", None), 3);
        assert_eq!(all("draining", Some("it owes an answer")), 3);
        // A job that runs keeps its licences.
        assert_eq!(all("draining", None), 1);
        assert_eq!(all("silent", None), 1);
    }

    #[test]
    fn only_leases_of_jobs_of_the_own_cluster_are_orphans() {
        let leases = [
            lease(1, "slurm", Some("slurm.blue.1"), None),
            lease(2, "slurm", Some("slurm.blue.2"), None),
            lease(3, "slurm", Some("slurm.blue.3"), Some("ended")),
            lease(4, "slurm", Some("slurm.red.4"), None),
            lease(5, "ada", Some("slurm.blue.5"), None),
            lease(6, "slurm", None, None),
        ];
        let pool = pool(&[], &leases);
        let leases = of_jobs(&pool.leases, &me(), "slurm.blue.");
        assert_eq!(leases.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(orphans(&leases, &Jobs::from([(1, None)])), [LeaseNumber(2)]);
    }
}
