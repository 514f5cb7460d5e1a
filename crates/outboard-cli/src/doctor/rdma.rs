//! What this machine has of RDMA.

use outboard_transport::rdma::{self, Allowed, CONNECTIONS, Port, Settings};
use rustix::process::{Resource, getrlimit};

use super::finding::Finding;

const CHECK: &str = "rdma";

/// The adapters that clients are offered.
pub(super) fn of_server(allowed: &Allowed, settings: Settings) -> Finding {
    crate::serve::rdma::raise_locked_memory();
    let limit = getrlimit(Resource::Memlock).maximum;
    look(allowed, settings.locked_by_server(), limit, "LimitMEMLOCK= of the service")
}

/// The adapters that a program uses.
pub(super) fn of_client(allowed: &Allowed) -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let settings = Settings::default().within_locked_memory();
    look(allowed, settings.locked_by_client(), limit, "`ulimit -l`")
}

/// `locked` is what a connection locks, in bytes.
fn look(allowed: &Allowed, locked: u64, limit: Option<u64>, which: &str) -> Finding {
    if !rdma::has_adapters() {
        return Finding::ok(CHECK, "this machine shows no RDMA adapter");
    }
    let ports = match allowed.ports() {
        Ok(ports) => ports,
        Err(error) => {
            let mend = "sessions use TCP meanwhile; `rdma link` shows adapters and their state";
            return Finding::warn(CHECK, error.to_string(), mend);
        }
    };
    let found = format!(
        "{}; a connection locks {} KiB",
        ports.iter().map(Port::to_string).collect::<Vec<_>>().join(", "),
        locked >> 10
    );
    match limit.filter(|limit| *limit < CONNECTIONS * locked) {
        Some(limit) => Finding::warn(
            CHECK,
            format!("{found}, and the limit on locked memory is {} KiB", limit >> 10),
            format!("raise {which} to {} MiB or more", (CONNECTIONS * locked) >> 20),
        ),
        None => Finding::ok(CHECK, found),
    }
}
