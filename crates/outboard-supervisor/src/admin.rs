//! Requests of administrators to a server over its own socket, and the answers: a length of four
//! bytes, little-endian, and JSON.
//!
//! Later versions only add fields, and a receiver skips unknown ones; [`VERSION`] increases when
//! that is not enough.

pub(crate) mod secret;
mod upgrade;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use upgrade::{ARRIVAL, Becoming, DECISION, UpgradeError, Upgraded};

/// Of the language. A server answers any version, and says its own.
pub const VERSION: u32 = 1;
/// The longest question, in bytes.
pub const LONGEST_QUESTION: usize = 64 << 10;
/// The longest answer.
pub const LONGEST_ANSWER: usize = 256 << 20;
/// How long either side waits for the other.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server is looked for that has closed the connection ...
const LOOKED_FOR: Duration = Duration::from_secs(5);
/// ... and how often.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// A question, with the asker's version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The secret beside the server's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The request.
    pub ask: Ask,
}

/// Requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// List all sessions, and the state of the server.
    Sessions,
    /// End sessions.
    Kill(Which),
    /// Trace a session for a while.
    Trace {
        /// The beginning of its number.
        session: String,
        /// For how long, in seconds.
        seconds: f64,
    },
    /// Replace the server by the program that now has its path.
    Upgrade,
}

/// The sessions to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// The one whose number begins so.
    Session(String),
    /// Those of an owner.
    Owner(String),
    /// All of them.
    All,
}

/// An answer, with the server's version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// [`VERSION`] of the server.
    pub version: u32,
    /// The answer.
    pub answer: Answer,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Ask::Sessions`].
    Sessions(Listing),
    /// To [`Ask::Kill`]: the numbers of the sessions that end.
    Killed(Vec<String>),
    /// To [`Ask::Trace`]: OTLP in JSON.
    Trace(serde_json::Value),
    /// To [`Ask::Upgrade`]: the connection closes when the server is another program, or an error
    /// follows.
    Becomes(Becoming),
    /// Nothing was done, for this reason.
    Error(String),
}

/// A place that is kept for a client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptPlace {
    /// What the client calls itself.
    pub client: String,
    /// Indices of the devices; empty for all.
    pub devices: Vec<u32>,
    /// For how many seconds yet.
    pub seconds: f64,
}

/// An exclusive device that is in use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// The device.
    pub device: u32,
    /// Its holder: an owner, or the machine of clients that have shown no token or certificate.
    pub owner: String,
    /// For how many seconds.
    pub seconds: f64,
}

/// The state of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listing {
    /// The server's release.
    pub software: String,
    /// The supervisor's process.
    pub process: u32,
    /// For how long it has served, in seconds.
    pub age_seconds: f64,
    /// Its Unix socket for clients of this machine, if it has one.
    pub socket: Option<String>,
    /// The most sessions it takes.
    pub most_sessions: usize,
    /// Workers that wait for a client.
    pub warm_workers: usize,
    /// How many are to wait now.
    pub warm_wanted: usize,
    /// Bytes of each device that they hold, by its index, where that is known.
    pub warm_device_memory: BTreeMap<String, u64>,
    /// Bytes of the server's machine that they hold.
    pub warm_host_memory: u64,
    /// Clients that wait for their place.
    pub waiting: usize,
    /// Places that are kept for clients that have asked for one and come back.
    pub kept: Vec<KeptPlace>,
    /// Exclusive devices that are in use.
    pub held: Vec<Held>,
    /// Sessions of the server before this one whose workers have not answered yet.
    pub unanswered: usize,
    /// Whether devices are `shared` or `exclusive`: of those with an index here, and, as `*`, of
    /// all others.
    pub sharing: BTreeMap<String, String>,
    /// The sessions, oldest first.
    pub sessions: Vec<Session>,
}

/// One session. Numbers are what its worker has counted so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// Its number, in hexadecimal.
    pub id: String,
    /// The owner for whom it counts.
    pub owner: String,
    /// The public name of the token that was shown.
    pub token: Option<String>,
    /// The number of the lease that was shown.
    pub lease: Option<u64>,
    /// What the client calls itself: program and process.
    pub client: String,
    /// Where the client is: its address, or its user on this machine.
    pub peer: String,
    /// The purpose of the connection: `session`, `management` or `probe`.
    pub kind: String,
    /// Its state: `starting`, `serving`, `ending`, and what else may keep a session from being
    /// served.
    pub state: String,
    /// How commands travel: `tcp`, `shm`, `tls`; empty while that is not settled.
    pub transport: String,
    /// The worker's process.
    pub worker: u32,
    /// Indices of the devices that the client asked for; empty for all.
    pub devices: Vec<u32>,
    /// Seconds since it began.
    pub age_seconds: f64,
    /// Seconds since the client was last heard.
    pub idle_seconds: f64,
    /// Its memory, on each device where it has a context or holds some.
    pub memory: Vec<Memory>,
    /// Commands, by class.
    pub commands: BTreeMap<String, u64>,
    /// Bytes that went to the device, by the way that they took.
    pub bytes_to_device: BTreeMap<String, u64>,
    /// Bytes that came from it.
    pub bytes_from_device: BTreeMap<String, u64>,
    /// Waits for the device.
    pub waits: u64,
    /// What they lasted together, in seconds.
    pub wait_seconds: f64,
    /// Errors that the client was told, by kind.
    pub errors: BTreeMap<String, u64>,
}

/// A session's share of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The device.
    pub device: u32,
    /// Whether there is a context.
    pub context: bool,
    /// Bytes held now.
    pub bytes: u64,
    /// The most at any time.
    pub peak: u64,
}

impl Session {
    /// Commands of all classes.
    pub fn calls(&self) -> u64 {
        self.commands.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Bytes both ways.
    pub fn bytes(&self) -> u64 {
        let all = self.bytes_to_device.values().chain(self.bytes_from_device.values());
        all.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Bytes of memory on all devices.
    pub fn held(&self) -> u64 {
        self.memory.iter().fold(0, |sum, memory| sum.saturating_add(memory.bytes))
    }
}

/// The socket that belongs to one for sessions: `9470.sock` has `9470.admin.sock`.
pub fn beside(socket: &Path) -> PathBuf {
    socket.with_extension("admin.sock")
}

/// A message with its length in front.
pub(crate) fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let len = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    Ok(bytes)
}

/// A connection to a server's administration.
#[derive(Debug)]
pub struct Admin {
    stream: UnixStream,
    path: PathBuf,
    secret: Option<String>,
}

impl Admin {
    /// Connects to the socket.
    pub fn connect(path: &Path) -> io::Result<Admin> {
        Admin::connect_for(path, PATIENCE)
    }

    /// Connects to the socket, and waits no longer than that for an answer.
    pub fn connect_for(path: &Path, patience: Duration) -> io::Result<Admin> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        // The server that has just been reached has put it there.
        let secret = secret::read(path)?;
        Ok(Admin { stream, path: path.to_owned(), secret })
    }

    /// Asks one thing. Returns an error for a request that the server declines.
    pub fn ask(&mut self, ask: Ask) -> io::Result<Answer> {
        let secret = self.secret.clone();
        let question = framed(&Question { version: VERSION, secret, ask })?;
        self.stream.write_all(&question).map_err(|error| silent(error, &self.stream))?;
        let reply: Reply = self.read().map_err(|error| silent(error, &self.stream))?;
        match reply.answer {
            Answer::Error(sentence) => Err(io::Error::other(sentence)),
            answer => Ok(answer),
        }
    }

    /// Asks for the state of the server. One that has become another release meanwhile, or was
    /// started again, is found again.
    pub fn listing(&mut self) -> io::Result<Listing> {
        let listing = self.ask_for_listing();
        let Err(error) = listing else { return listing };
        if !is_closed(&error) || !self.reconnect() {
            return Err(error);
        }
        self.ask_for_listing()
    }

    /// Whether a server answers there again soon.
    fn reconnect(&mut self) -> bool {
        let deadline = Instant::now() + LOOKED_FOR;
        while Instant::now() < deadline {
            if let Ok(admin) = Admin::connect(&self.path) {
                *self = admin;
                return true;
            }
            std::thread::sleep(LOOKED_EVERY);
        }
        false
    }

    fn ask_for_listing(&mut self) -> io::Result<Listing> {
        match self.ask(Ask::Sessions)? {
            Answer::Sessions(listing) => Ok(listing),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends sessions, and says which.
    pub fn kill(&mut self, which: Which) -> io::Result<Vec<String>> {
        match self.ask(Ask::Kill(which))? {
            Answer::Killed(sessions) => Ok(sessions),
            other => Err(unexpected(&other)),
        }
    }

    /// Traces a session for that many seconds; returns OTLP in JSON.
    pub fn trace(&mut self, session: String, seconds: f64) -> io::Result<serde_json::Value> {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.stream.set_read_timeout(Some(PATIENCE + time))?;
        match self.ask(Ask::Trace { session, seconds })? {
            Answer::Trace(trace) => Ok(trace),
            other => Err(unexpected(&other)),
        }
    }

    fn read<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > LONGEST_ANSWER {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server's answer is too long",
            ));
        }
        let mut bytes = Vec::new();
        Read::by_ref(&mut self.stream).take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The text of a system error, for people.
fn silent(error: io::Error, stream: &UnixStream) -> io::Error {
    let sentence = match error.kind() {
        _ if is_closed(&error) => {
            "the server closed the connection before it had answered".to_owned()
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let patience = stream.read_timeout().ok().flatten().unwrap_or(PATIENCE);
            format!("the server has not answered for {} seconds", patience.as_secs())
        }
        _ => return error,
    };
    io::Error::new(error.kind(), sentence)
}

fn unexpected(answer: &Answer) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the server answers something else: {answer:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_side_adds_is_skipped() {
        let newer = r#"{"version":7,"answer":{"sessions":{"process":3,"weather":"fine","sessions":[{"id":"ab","moon":1}]}}}"#;
        let reply: Reply = serde_json::from_str(newer).unwrap();
        let Answer::Sessions(listing) = reply.answer else { panic!("{reply:?}") };
        assert_eq!((reply.version, listing.process, listing.sessions[0].id.as_str()), (7, 3, "ab"));
        assert!(serde_json::from_str::<Question>(r#"{"version":7,"ask":"dance"}"#).is_err());
    }

    #[test]
    fn the_socket_lies_beside_the_other() {
        assert_eq!(
            beside(Path::new("/run/outboard/9470.sock")),
            Path::new("/run/outboard/9470.admin.sock")
        );
    }
}
