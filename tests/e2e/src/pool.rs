//! A pool for tests: a broker's key, a client's key, and leases.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::{SignedDuration, Timestamp};
use outboard_pool::lease::{Lease, SigningKey, sign};
use outboard_pool::words::{Granted, LeaseNumber, MayShare, Share, Use};
use outboard_transport::client_key::{ClientKey, thumbprint};
use outboard_wire::handshake::lease::ShownLease;

use crate::{Driver, Folder, Program, Running, Server};

/// A mebibyte.
pub const MIB: u64 = 1 << 20;

/// What a client's environment says, by name.
pub type Env = Vec<(&'static str, String)>;

/// A broker's key, a client's key, and the folder with their files.
#[derive(Debug)]
pub struct Pool {
    pub folder: Folder,
    pub broker: SigningKey,
    broker_file: String,
    pub key: ClientKey,
    pub key_file: String,
    /// UUIDs of the servers' devices.
    pub devices: Vec<String>,
}

pub fn new_key(folder: &Folder, name: &str) -> (ClientKey, String) {
    let made = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let pem = made.serialize_pem();
    (ClientKey::from_pem(pem.as_bytes()).expect("it was made so"), folder.write(name, &pem))
}

impl Pool {
    pub fn create() -> Pool {
        let folder = Folder::create();
        let broker = SigningKey::generate().expect("a key");
        let broker_file = folder.write("broker.pub", &broker.public().to_text());
        let (key, key_file) = new_key(&folder, "client.key");
        let all = Program::new("devices").env("OUTBOARD_CPU_DEVICES", "3").directly();
        all.expect_success("devices");
        let devices: Vec<String> = all.stdout.lines().filter_map(uuid).collect();
        assert!(!devices.is_empty(), "{}", all.stdout);
        Pool { folder, broker, broker_file, key, key_file, devices }
    }

    /// A server of the pool.
    pub fn serve(&self, name: &str, args: &[&str]) -> Server {
        self.serve_on(name, args, &[])
    }

    /// The same, with these variables.
    pub fn serve_on(&self, name: &str, args: &[&str], env: &[(&str, &str)]) -> Server {
        Pool::start(name, &[&["--pool-signer", &self.broker_file], args].concat(), env)
    }

    /// The same, for one that knows the broker otherwise.
    pub fn serve_with(name: &str, args: &[&str]) -> Server {
        Pool::start(name, args, &[])
    }

    fn start(name: &str, args: &[&str], env: &[(&str, &str)]) -> Server {
        let own = ["--driver", Driver::chosen().name(), "--pool-name", name];
        let env = [&[("OUTBOARD_CPU_DEVICES", "3")], env].concat();
        Server::start_with(&[&own[..], args].concat(), &env)
    }

    /// Starts a program that holds so much memory until it is ended.
    pub fn hold(&self, lease: &Lease, server: &Server, bytes: u64) -> Running {
        let program = self.program("memory_limit", lease).arg("hold").arg(&bytes.to_string());
        program.start_through(server)
    }

    pub fn granted(&self, server: &str, device: usize, memory_bytes: u64, usage: Use) -> Granted {
        let device = self.devices[device].parse().expect("a UUID");
        Granted { server: server.parse().expect("a name"), device, memory_bytes, usage }
    }

    /// A lease of alice for an hour, with these devices of `gpu1`.
    pub fn lease(&self, number: u64, devices: &[(usize, u64, Use)]) -> Lease {
        let devices = devices
            .iter()
            .map(|(device, memory, usage)| self.granted("gpu1", *device, *memory, *usage))
            .collect();
        Lease {
            number: LeaseNumber(number),
            owner: "alice".parse().expect("a name"),
            group: "physics".parse().expect("a name"),
            devices,
            priority: 0,
            not_before: Timestamp::now(),
            expires: from_now(3600),
            renewable_until: from_now(3600),
            client_key: thumbprint(&self.key.public()).parse().expect("a thumbprint"),
            may_share: MayShare::SameKey,
        }
    }

    pub fn shared(&self, number: u64, memory: u64) -> Lease {
        self.lease(number, &[(0, memory, half())])
    }

    /// What a client's environment says of a lease; the connection is in the clear.
    pub fn env(&self, lease: &Lease) -> Env {
        self.env_of(lease, &self.broker, &self.key_file)
    }

    pub fn env_of(&self, lease: &Lease, broker: &SigningKey, key: &str) -> Env {
        let token = sign(lease, broker).expect("it is good for a while");
        // Each lease is a file of its own, however often it is changed.
        let name = format!("lease-{}-{}", lease.number, thumbprint_of(&token));
        let file = self.folder.write(&name, &format!("{token}\n"));
        self.folder.allow(&name, 0o400);
        vec![
            ("OUTBOARD_LEASE", file),
            ("OUTBOARD_LEASE_KEY", key.to_owned()),
            ("OUTBOARD_TLS", "off".to_owned()),
        ]
    }

    pub fn program(&self, name: &str, lease: &Lease) -> Program {
        with(Program::new(name).env("OUTBOARD_LOG", "1"), &self.env(lease))
    }

    /// What a client that speaks the protocol itself shows.
    pub fn shown(&self, lease: &Lease, nonce: u128) -> ShownLease {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let mut shown = ShownLease {
            token: sign(lease, &self.broker).expect("it is good for a while"),
            server: "gpu1".to_owned(),
            key: self.key.public(),
            time: u64::try_from(since.as_millis()).expect("before the end of time"),
            nonce,
            signature: [0; 64],
        };
        shown.signature = self.key.sign(&shown.statement(None));
        shown
    }
}

fn thumbprint_of(token: &str) -> String {
    token.bytes().rev().take(12).map(|byte| format!("{byte:02x}")).collect()
}

pub fn uuid(line: &str) -> Option<String> {
    let at = line.find("GPU-")?;
    Some(line[at..].split(',').next()?.to_owned())
}

pub fn half() -> Use {
    Use::Shared(Share::try_from(50).expect("a share"))
}

pub fn from_now(seconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(seconds)
}

pub fn with(program: Program, env: &[(&'static str, String)]) -> Program {
    env.iter().fold(program, |program, (name, value)| program.env(name, value))
}
