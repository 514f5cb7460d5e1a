//! Divides the descriptors that this process may have: each kind of connection has its own part, so
//! that none takes those of another.
//!
//! When all parts are used up, as many are left as accepting a client and starting a worker need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::config::Config;

/// Descriptors that this process has open permanently, and those that it opens for a moment:
/// standard streams, the runtime's, sockets that listen, files that are read, pipes to a process
/// that starts.
const OWN: usize = 36;
/// A worker's socket, its process, its meter, the listener of its system calls, and its client's
/// connection until it is handed over.
const OF_A_SESSION: usize = 5;
/// A worker that waits: its socket and its process.
const OF_A_WARM_WORKER: usize = 2;
/// The least that can be divided.
const LEAST_DESCRIPTORS: usize = 20;

/// The parts, each in units of its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// Sessions and clients with queries, by their workers.
    pub(super) sessions: usize,
    /// Clients at their hello, over TCP.
    pub(super) hellos: usize,
    /// The same by the Unix socket.
    pub(super) local_hellos: usize,
    /// Clients that wait to be let in.
    pub(super) queue: usize,
    /// Connections that read metrics.
    pub(super) metrics: usize,
    pub(super) administrators: usize,
    /// Descriptors that sessions share with each other.
    pub(super) shared: usize,
}

/// Lets this process have as many descriptors as it may: the usual limit is lower than what the
/// sessions need. How many that are.
pub(super) fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

impl Parts {
    /// Divides so many; `None` if they are too few to serve anybody.
    pub(super) fn of(limit: usize, config: &Config) -> Option<Parts> {
        let rest = limit
            .saturating_sub(OWN)
            .saturating_sub(OF_A_WARM_WORKER.saturating_mul(config.warm.most));
        if rest < LEAST_DESCRIPTORS {
            return None;
        }
        let part = |of: usize, most: usize| (rest / of).max(2).min(most);
        let mut parts = Parts {
            sessions: 0,
            hellos: part(8, config.max_hellos),
            local_hellos: part(16, config.max_hellos),
            queue: (rest / 8).min(config.sharing.queue),
            metrics: part(32, MOST_METRICS),
            administrators: part(32, MOST_ADMINISTRATORS),
            shared: part(4, MOST_SHARED),
        };
        let others = parts.hellos
            + parts.local_hellos
            + parts.queue
            + parts.metrics
            + parts.administrators
            + parts.shared;
        parts.sessions = (rest.saturating_sub(others) / OF_A_SESSION).min(config.max_sessions);
        (parts.sessions > 0).then_some(parts)
    }

    /// Descriptors that one session may share.
    pub(super) fn shared_of_a_session(&self) -> usize {
        (self.shared / 4).clamp(1, MOST_OF_A_SESSION)
    }
}

/// Readers of metrics and administrators are few, however many descriptors there are.
const MOST_METRICS: usize = 32;
const MOST_ADMINISTRATORS: usize = 16;
/// The most descriptors that all sessions share.
const MOST_SHARED: usize = 1 << 15;
/// The most that one does: a process that exports memory has two of its own for each.
const MOST_OF_A_SESSION: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::WorkerCommand;
    use crate::warm::Bounds;

    fn config() -> Config {
        Config::new("127.0.0.1:0", WorkerCommand::this_program(["worker"]))
    }

    fn used(parts: &Parts, config: &Config) -> usize {
        OWN + OF_A_WARM_WORKER * config.warm.most
            + OF_A_SESSION * parts.sessions
            + parts.hellos
            + parts.local_hellos
            + parts.queue
            + parts.metrics
            + parts.administrators
            + parts.shared
    }

    #[test]
    fn the_parts_never_exceed_what_there_is() {
        for warm in [0, 1, 4] {
            for queue in [0, 7, 100_000] {
                let mut config = config();
                (config.warm, config.sharing.queue) = (Bounds::fixed(warm), queue);
                for limit in (0..5000).chain([20_000, 1 << 20, usize::MAX]) {
                    if let Some(parts) = Parts::of(limit, &config) {
                        assert!(used(&parts, &config) <= limit, "{limit}: {parts:?}");
                        assert!(parts.shared_of_a_session() <= parts.shared && parts.sessions > 0);
                        assert!(parts.shared <= limit / 4);
                    }
                }
            }
        }
    }

    #[test]
    fn who_has_many_is_not_limited_by_them_and_who_has_few_serves_few() {
        let mut config = config();
        config.warm = Bounds::fixed(1);
        let parts = Parts::of(1 << 19, &config).unwrap();
        assert_eq!((parts.sessions, parts.hellos, parts.metrics), (1024, 256, MOST_METRICS));
        assert_eq!(parts.shared_of_a_session(), MOST_OF_A_SESSION);
        let few = Parts::of(64, &config).unwrap();
        assert!(few.sessions >= 2 && few.hellos >= 2 && few.shared_of_a_session() == 1, "{few:?}");
        assert_eq!(Parts::of(32, &config), None);
    }
}
