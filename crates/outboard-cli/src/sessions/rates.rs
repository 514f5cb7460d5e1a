//! Rates of sessions, from one listing to the next.

use std::collections::{BTreeMap, HashMap};

use outboard_supervisor::admin::{Held, KeptPlace, Listing, Session};
use serde::Serialize;

/// Remembers a listing to compare the next one with.
#[derive(Default)]
pub(crate) struct Rates {
    when: f64,
    before: HashMap<String, Counted>,
}

#[derive(Clone, Copy)]
struct Counted {
    calls: u64,
    launches: u64,
    to_device: u64,
    from_device: u64,
    wait_seconds: f64,
}

/// A listing, with what happened since the one before.
#[derive(Serialize, Default, Clone)]
pub(crate) struct Rated {
    /// The server's release.
    pub(crate) software: String,
    /// For how long it has served.
    pub(crate) age_seconds: f64,
    /// The most sessions that it takes.
    pub(crate) most_sessions: usize,
    /// Workers that wait for a client.
    pub(crate) warm_workers: usize,
    /// How many are to wait now.
    pub(crate) warm_wanted: usize,
    /// Bytes of each device that they hold, by its index.
    pub(crate) warm_device_memory: BTreeMap<String, u64>,
    /// Bytes of the server's machine that they hold.
    pub(crate) warm_host_memory: u64,
    /// Places that are kept for clients that come back.
    pub(crate) kept: Vec<KeptPlace>,
    /// Exclusive devices in use.
    pub(crate) held: Vec<Held>,
    pub(crate) sessions: Vec<RatedSession>,
}

#[derive(Serialize, Default, Clone)]
pub(crate) struct RatedSession {
    #[serde(flatten)]
    pub(crate) session: Session,
    pub(crate) calls_per_second: f64,
    pub(crate) launches_per_second: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) bytes_to_device_per_second: f64,
    pub(crate) bytes_from_device_per_second: f64,
    /// Threads that waited for the device, on average.
    pub(crate) waiting: f64,
}

fn counted(session: &Session) -> Counted {
    let sum = |counts: &std::collections::BTreeMap<String, u64>| {
        counts.values().fold(0_u64, |sum, count| sum.saturating_add(*count))
    };
    Counted {
        calls: session.calls(),
        launches: session.commands.get("launch").copied().unwrap_or(0),
        to_device: sum(&session.bytes_to_device),
        from_device: sum(&session.bytes_from_device),
        wait_seconds: session.wait_seconds,
    }
}

impl Rates {
    /// Compares with the listing before. A session that was not in the earlier listing has done
    /// everything since.
    pub(crate) fn take(&mut self, listing: Listing) -> Rated {
        let seconds = listing.age_seconds - self.when;
        let mut now = HashMap::new();
        let rated = |session: Session| {
            let counts = counted(&session);
            let then = self.before.get(&session.id).copied();
            // One that has just begun has done everything in its own time.
            let seconds = if then.is_none() { session.age_seconds.min(seconds) } else { seconds };
            let before = then.unwrap_or(Counted {
                calls: 0,
                launches: 0,
                to_device: 0,
                from_device: 0,
                wait_seconds: 0.0,
            });
            let per_second = |now: u64, before: u64| {
                if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
            };
            let to_device = per_second(counts.to_device, before.to_device);
            let from_device = per_second(counts.from_device, before.from_device);
            let waiting = if seconds > 0.0 {
                (counts.wait_seconds - before.wait_seconds).max(0.0) / seconds
            } else {
                0.0
            };
            now.insert(session.id.clone(), counts);
            RatedSession {
                calls_per_second: per_second(counts.calls, before.calls),
                launches_per_second: per_second(counts.launches, before.launches),
                bytes_per_second: to_device + from_device,
                bytes_to_device_per_second: to_device,
                bytes_from_device_per_second: from_device,
                waiting,
                session,
            }
        };
        let sessions = listing.sessions.into_iter().map(rated).collect();
        self.when = listing.age_seconds;
        self.before = now;
        Rated {
            software: listing.software,
            age_seconds: listing.age_seconds,
            most_sessions: listing.most_sessions,
            warm_workers: listing.warm_workers,
            warm_wanted: listing.warm_wanted,
            warm_device_memory: listing.warm_device_memory,
            warm_host_memory: listing.warm_host_memory,
            kept: listing.kept,
            held: listing.held,
            sessions,
        }
    }
}
