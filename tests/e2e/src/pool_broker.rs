//! A broker for tests, and servers of its pool that are only played.

use crate::{Folder, Lines, command, within};
use outboard_broker_client::{Blocking, Method, Settings};
use outboard_pool::api::{Beat, BeatAnswer, LeaseUse};
use outboard_pool::lease::{Lease, PublicKey, PublicKeys, SigningKey, prove, verify};
use outboard_pool::words::{
    Capability, Condition, Device, Granted, Health, LeaseNumber, Server, ServerName, Use,
};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running `outboard broker`; killed when dropped.
#[derive(Debug)]
pub struct PoolBroker {
    child: Child,
    /// Where it listens.
    pub address: String,
    /// Of its certificate.
    pub fingerprint: String,
    /// What it says.
    pub log: Lines,
    /// Its folder.
    pub state: Arc<Folder>,
    flags: Vec<String>,
}

impl PoolBroker {
    /// Starts one on a free port, with a folder of its own.
    pub fn start(flags: &[&str]) -> PoolBroker {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        PoolBroker::at("127.0.0.1:0", Arc::new(Folder::create()), flags)
    }

    /// The same for one that may open so many files.
    pub fn start_with_files(files: u32) -> PoolBroker {
        PoolBroker::at_with_files(files, Arc::new(Folder::create()), Vec::new())
    }

    /// The same at any port, with that folder.
    pub(crate) fn at_with_files(files: u32, state: Arc<Folder>, flags: Vec<String>) -> PoolBroker {
        let outboard = command();
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &files.to_string()]);
        limited.arg(outboard.get_program());
        let variables = outboard.get_envs();
        for (name, value) in variables.filter_map(|(name, value)| Some((name, value?))) {
            limited.env(name, value);
        }
        PoolBroker::by(limited, "127.0.0.1:0", state, flags)
    }

    /// Starts one at that address, with that folder, once it listens.
    pub fn at(listen: &str, state: Arc<Folder>, flags: Vec<String>) -> PoolBroker {
        PoolBroker::by(command(), listen, state, flags)
    }

    fn by(
        mut outboard: Command,
        listen: &str,
        state: Arc<Folder>,
        flags: Vec<String>,
    ) -> PoolBroker {
        let mut child = outboard
            .args(["broker", "--listen", listen, "--state", &state.path("broker")])
            .args(&flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("outboard starts");
        let log = Lines::of(child.stderr.take());
        // It brokers, or stands by.
        let ready = log.find(" address=");
        let part = |name: &str| {
            let behind = ready.split(name).nth(1).expect("it is told");
            behind.split_whitespace().next().expect("it is told").to_owned()
        };
        let (address, fingerprint) = (part("address="), part("fingerprint="));
        PoolBroker { child, address, fingerprint, log, state, flags }
    }

    /// Kills it with no time to do anything.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has run");
    }

    /// Starts it again, at the same address with the same folder.
    pub fn restart(&mut self) {
        let (state, flags) = (Arc::clone(&self.state), self.flags.clone());
        let address = self.address.clone();
        *self = PoolBroker::at(&address, state, flags);
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// A token with that role.
    pub fn token(&self, role: &str, owner: &str) -> String {
        let state = self.state.path("broker");
        let made = command()
            .args(["token", "create", "--json", "--broker", "--state", &state])
            .args(["--role", role, "--owner", owner])
            .output()
            .expect("outboard starts");
        let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
        made["token"].as_str().expect("a text").to_owned()
    }

    /// The settings of somebody with that token.
    pub fn settings(&self, token: &str) -> Settings {
        Settings {
            url: Some(format!("https://{}", self.address)),
            fingerprint: Some(self.fingerprint.clone()),
            token: Some(token.to_owned()),
            ..Settings::default()
        }
    }

    /// The broker for somebody with that token.
    pub fn for_token(&self, token: &str) -> Blocking {
        let access = self.settings(token).access().expect("the settings are fine");
        Blocking::new(access).expect("the system plays along")
    }

    /// The variables of somebody with that token.
    pub fn variables(&self, token: &str) -> [(&'static str, String); 3] {
        [
            ("OUTBOARD_POOL", format!("https://{}", self.address)),
            ("OUTBOARD_POOL_FINGERPRINT", self.fingerprint.clone()),
            ("OUTBOARD_POOL_TOKEN", token.to_owned()),
        ]
    }

    /// Runs the command as somebody with that token.
    pub fn command(&self, token: &str, args: &[&str]) -> Output {
        command().args(args).envs(self.variables(token)).output().expect("outboard starts")
    }
}

impl Drop for PoolBroker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of the pool that has devices in name only, and does as it is told.
#[derive(Debug)]
pub struct PlayedServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    name: ServerName,
    is_over: AtomicBool,
    is_silent: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: PublicKeys,
    /// How many beats were answered.
    beats: u64,
    in_use: BTreeMap<LeaseNumber, Lease>,
    ended: BTreeSet<LeaseNumber>,
    last: Vec<LeaseNumber>,
}

/// What a server of that name says of itself.
pub(crate) fn described(name: &str, devices: usize) -> Server {
    let device = |at: usize| Device {
        uuid: format!("GPU-{name}-{at}").parse().expect("it is a name"),
        model: "Played 80GB".into(),
        memory_bytes: 80 << 30,
        capability: Capability { major: 9, minor: 0 },
        nvlink: BTreeSet::new(),
        load_percent: 0,
        health: Health::Well,
    };
    Server {
        name: name.parse().expect("it is a name"),
        driver: "580.1".into(),
        labels: BTreeMap::new(),
        condition: Condition::Ready,
        devices: (0..devices).map(device).collect(),
    }
}

/// The key of all played servers.
fn key() -> &'static SigningKey {
    static KEY: OnceLock<SigningKey> = OnceLock::new();
    KEY.get_or_init(|| SigningKey::generate().expect("there is randomness"))
}

/// How often a played server beats.
const PAUSE: Duration = Duration::from_millis(50);

impl PlayedServer {
    /// Registers a server with so many devices of 80 GiB.
    pub fn start(broker: &PoolBroker, token: &str, name: &str, devices: usize) -> PlayedServer {
        PlayedServer::of(broker.for_token(token), name, devices)
    }

    /// The same at whichever broker leads.
    pub fn of(asked: Blocking, name: &str, devices: usize) -> PlayedServer {
        let server = described(name, devices);
        let shared = Arc::new(Shared {
            name: server.name.clone(),
            is_over: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            state: Mutex::default(),
        });
        let played = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !played.is_over.load(Ordering::Relaxed) {
                if !played.is_silent.load(Ordering::Relaxed) {
                    played.beat(&asked, &server);
                }
                std::thread::sleep(PAUSE);
            }
        });
        let started = PlayedServer { shared, thread: Some(thread) };
        let beats = || started.shared.state.lock().expect("nobody panics").beats;
        assert!(within(crate::PATIENCE, || beats() > 0), "the server is not registered");
        started
    }

    /// Whether the token is of a lease that this server believes; if so, a session uses it.
    pub fn use_lease(&self, token: &str) -> Result<Lease, String> {
        let mut state = self.shared.state.lock().expect("nobody panics");
        let now = jiff::Timestamp::now();
        let lease = verify(token, &state.keys, &self.shared.name, now);
        let lease = lease.map_err(|denied| denied.to_string())?;
        if state.ended.contains(&lease.number) {
            return Err(format!("lease {} has ended", lease.number));
        }
        let name = &self.shared.name;
        for other in state.in_use.values().filter(|other| other.number != lease.number) {
            // Nobody else is to have what is one lease's alone.
            let is_alone = |granted: &&Granted| granted.usage == Use::Exclusive;
            let both = lease
                .on(name)
                .filter(is_alone)
                .find(|granted| other.on(name).any(|theirs| theirs.device == granted.device));
            if let Some(both) = both {
                let (one, two) = (other.number, lease.number);
                panic!("{} is given to leases {one} and {two}", both.device);
            }
        }
        state.in_use.insert(lease.number, lease.clone());
        Ok(lease)
    }

    /// Its name.
    pub fn name(&self) -> &ServerName {
        &self.shared.name
    }

    /// The leases that its sessions use.
    pub fn in_use(&self) -> Vec<LeaseNumber> {
        self.shared.state.lock().expect("nobody panics").in_use.keys().copied().collect()
    }

    /// Whether it says nothing from now on.
    pub fn be_silent(&self, is_silent: bool) {
        self.shared.is_silent.store(is_silent, Ordering::Relaxed);
    }
}

impl Shared {
    fn beat(&self, broker: &Blocking, server: &Server) {
        let beat = {
            let state = self.state.lock().expect("nobody panics");
            let used = |lease: &Lease| LeaseUse {
                lease: lease.number,
                expires: lease.expires,
                sessions: 1,
                memory_bytes: 1 << 30,
            };
            Beat {
                server: server.clone(),
                address: format!("{}:9470", server.name),
                fingerprint: Some(format!("sha256:{}", "0a".repeat(32))),
                release: "0.1.0".into(),
                in_use: state.in_use.values().map(used).collect(),
                gone: state.last.clone(),
                start: Some(1),
            }
        };
        // A broker may be away.
        let body = serde_json::to_vec(&beat).expect("it has a form in JSON");
        let proof = prove(&body, key(), jiff::Timestamp::now());
        let said = broker.tell_proven(Method::POST, "/v1/beat", body, proof.as_deref());
        let Ok(said) = said else { return };
        let answer: BeatAnswer = serde_json::from_slice(&said).expect("it answers a beat");
        let mut state = self.state.lock().expect("nobody panics");
        let keys = answer.keys.iter().filter_map(|key| PublicKey::from_text(key).ok());
        state.keys = keys.collect();
        for lease in &answer.ended {
            state.in_use.remove(lease);
            state.ended.insert(*lease);
        }
        for token in &answer.renewed {
            let now = jiff::Timestamp::now();
            if let Ok(lease) = verify(token, &state.keys, &self.name, now) {
                state.in_use.insert(lease.number, lease);
            }
        }
        state.last = answer.ended;
        state.beats += 1;
    }
}

impl Drop for PlayedServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
