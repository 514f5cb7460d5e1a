//! Several brokers of one pool, which keep leases in one etcd.

use crate::cut::Wires;
use crate::pool_broker::PoolBroker;
use crate::{Folder, PATIENCE, within};
use outboard_broker_client::{AskError, Blocking, Method, Settings};
use outboard_pool::api::{Ask, Grant, PoolView, Standing};
use outboard_pool::words::{LeaseNumber, MayShare, Request};
use outboard_test_support::etcd::Etcd;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the brokers of a pool have in common.
const COMMON: [&str; 4] = ["lease.key", "server.crt", "server.key", "tokens.json"];

/// Some brokers and their etcd.
#[derive(Debug)]
pub struct Brokers {
    /// The brokers.
    pub all: Vec<PoolBroker>,
    /// Their wires to the etcd's members.
    pub wires: Vec<Wires>,
    /// The etcd.
    pub etcd: Etcd,
    /// The tokens of a server, of clients and of an admin.
    pub tokens: Tokens,
}

/// Tokens that all brokers know.
#[derive(Debug)]
pub struct Tokens {
    /// Of servers.
    pub server: String,
    /// Of the clients `owner0`, `owner1` ...
    pub clients: Vec<String>,
    /// Of an admin.
    pub admin: String,
}

/// Copies what the brokers of a pool have in common.
pub fn copy_common(from: &Folder, to: &Folder) {
    let (from, to) = (from.path("broker"), to.path("broker"));
    std::fs::create_dir_all(&to).expect("it is the test's own");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&to, mode).expect("it is the test's own");
    for name in COMMON {
        std::fs::copy(Path::new(&from).join(name), Path::new(&to).join(name)).expect("it is there");
    }
}

impl Brokers {
    /// Starts so many with an etcd of three members, if this machine has etcd.
    pub fn start(count: usize, clients: usize, flags: &[&str]) -> Option<Brokers> {
        let start = |state, flags| PoolBroker::at("127.0.0.1:0", state, flags);
        Brokers::start_by(start, count, clients, flags)
    }

    /// The same, each of which may open so many files, and so has fewer places for connections.
    pub fn start_with_files(files: u32, count: usize, clients: usize) -> Option<Brokers> {
        let start = |state, flags| PoolBroker::at_with_files(files, state, flags);
        Brokers::start_by(start, count, clients, &[])
    }

    fn start_by(
        start: impl Fn(Arc<Folder>, Vec<String>) -> PoolBroker,
        count: usize,
        clients: usize,
        flags: &[&str],
    ) -> Option<Brokers> {
        let etcd = Etcd::start(3)?;
        let wires: Vec<Wires> = (0..count).map(|_| Wires::to(&etcd.ports())).collect();
        let start_at = |at: usize, folder: Folder| {
            let hosts: Vec<String> =
                wires[at].ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            let store = ["--store".to_owned(), format!("etcd://{}", hosts.join(","))];
            let flags = store.into_iter().chain(flags.iter().map(|&flag| flag.to_owned()));
            start(Arc::new(folder), flags.collect())
        };
        let first = start_at(0, Folder::create());
        let tokens = Tokens {
            server: first.token("server", "servers"),
            clients: (0..clients).map(|at| first.token("client", &format!("owner{at}"))).collect(),
            admin: first.token("admin", "root"),
        };
        // Then it has made its key.
        first.log.find("brokering");
        let mut all = vec![first];
        for at in 1..count {
            let folder = Folder::create();
            copy_common(&all[0].state, &folder);
            all.push(start_at(at, folder));
        }
        Some(Brokers { all, wires, etcd, tokens })
    }

    /// The addresses of all.
    pub fn urls(&self) -> String {
        let urls: Vec<String> =
            self.all.iter().map(|broker| format!("https://{}", broker.address)).collect();
        urls.join(",")
    }

    /// The settings of somebody with that token.
    pub fn settings(&self, token: &str) -> Settings {
        Settings { url: Some(self.urls()), ..self.all[0].settings(token) }
    }

    /// The brokers for somebody with that token.
    pub fn for_token(&self, token: &str) -> Blocking {
        Blocking::new(self.settings(token).access().expect("they are fine")).expect("it can be")
    }

    /// The variables of somebody with that token.
    pub fn variables(&self, token: &str) -> [(&'static str, String); 3] {
        let [_, fingerprint, token] = self.all[0].variables(token);
        [("OUTBOARD_POOL", self.urls()), fingerprint, token]
    }

    /// What one of them says of its health.
    pub fn health(&self, at: usize) -> String {
        let asked = self.all[at].for_token("").bytes(Method::GET, "/healthz");
        asked.map_or_else(
            |error| error.to_string(),
            |said| String::from_utf8_lossy(&said).trim().to_owned(),
        )
    }

    /// The one that leads, once one does. Those that do not answer are not asked.
    pub fn leader(&self, but: Option<usize>) -> usize {
        let mut found = None;
        let leads = |at: usize| Some(at) != but && self.health(at) == "serving";
        let looked = within(PATIENCE, || {
            found = (0..self.all.len()).find(|at| leads(*at));
            found.is_some()
        });
        assert!(looked, "no broker leads");
        found.expect("it was found")
    }

    /// Stops one, or has it go on.
    pub fn signal(&self, at: usize, signal: Signal) {
        let process = i32::try_from(self.all[at].process()).expect("it is a process");
        kill_process(Pid::from_raw(process).expect("it is one"), signal).expect("it runs");
    }
}

/// A request for a device, for that purpose.
pub fn ask(owner: &str, purpose: &str) -> Ask {
    let (owner, group) =
        (owner.parse().expect("it is a name"), "everybody".parse().expect("it is a name"));
    let request = Request {
        memory_bytes: 1 << 20,
        may_share: MayShare::SameKey,
        wait_seconds: 60,
        ..Request::new(owner, group, 1)
    };
    let purpose = Some(purpose.parse().expect("it is a name"));
    Ask { purpose, ..Ask::new(request, "ab".repeat(32).parse().expect("it is a name")) }
}

/// Asks until there is an answer, as a client does.
pub fn granted(broker: &Blocking, ask: &Ask) -> Grant {
    let begun = Instant::now();
    let mut last = String::new();
    while begun.elapsed() < PATIENCE {
        match broker.tell(Method::POST, "/v1/requests", ask) {
            Ok(Standing::Granted(grant)) => return grant,
            Ok(Standing::Waiting { because, .. }) => last = because,
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nothing was granted: {last}");
}

/// Gives it back, whether or not an answer comes.
pub fn give_back(broker: &Blocking, lease: LeaseNumber) {
    let is_over = || match broker.bytes(Method::DELETE, &format!("/v1/leases/{lease}")) {
        Ok(_) | Err(AskError::Refused { status: 404, .. }) => true,
        Err(_) => false,
    };
    assert!(within(PATIENCE, is_over), "lease {lease} is not given back");
}

/// All that an admin sees.
pub fn view(broker: &Blocking) -> PoolView {
    broker.ask(Method::GET, "/v1/pool").expect("it may be seen")
}
