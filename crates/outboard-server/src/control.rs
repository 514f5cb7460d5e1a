//! What supervisor and worker say to each other, over a socket pair that keeps messages apart. The worker finds its
//! end as standard input.
//!
//! A worker that has a session goes on when its supervisor is gone, and the next supervisor, perhaps of another release, takes it over. So what
//! is said after a session has begun never changes its form or number: there is a new message instead, and who does not know one skips it.

mod codec;
mod socket;
#[cfg(test)]
mod tests;

use std::time::Duration;

use outboard_nvml::Gauges;
use outboard_wire::handshake::resume::Point;
use outboard_wire::handshake::{Local, Process, RefusalCode};

use crate::identity::Identity;
use crate::trace::Span;
pub(crate) use socket::{LONGEST, has_gone, pair, receive, send, send_patiently};

/// Supervisor to worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToWorker {
    /// Get ready for a client that comes later; the start follows then.
    Warm(Warm),
    /// There will be no client: be ready to say how the devices do. The board comes along.
    Watch(Watch),
    /// How do the devices do now?
    Look,
    /// Serve the client whose connection comes along.
    Start(Box<Start>),
    /// The board comes along; it follows the start.
    Board,
    /// The session's meter comes along; it follows the board.
    Meter,
    /// Spans are wanted from now on, as parts of this one; or no longer.
    Trace { on: bool, root: u64 },
    /// The session is to end now; the client is told this.
    End { sentence: String },
    /// The connection that comes along is one more lane of the session, or takes the place of one; if `secure`, it is encrypted.
    Lane { secure: bool, point: Option<Point> },
    /// The session's commands go on over the connection that comes along.
    GoOn { secure: bool, point: Point },
    /// The session, which has sent no command yet, goes on through memory that the connection that comes along brings.
    Memory,
    /// Take up no command, if none is at hand: the driver is to be suspended.
    Suspend,
    /// The driver goes on, or was not suspended.
    Resume,
    /// The answer to a request: what was asked for, perhaps with a descriptor; none if it is not there or was not taken.
    Answer { request: u64, payload: Option<Vec<u8>> },
    /// The socket that comes along is where the next supervisor will connect, should this one go. So many seconds the worker waits for it, or as
    /// long as its client is there.
    Home { outlive: Option<u64> },
    /// The descriptor that comes along is for the next supervisor.
    Keep { tag: u8 },
    /// Something that a supervisor of another release says.
    Unknown(u8),
}

/// Descriptors that workers keep for the next supervisor.
pub(crate) mod tags {
    /// The board.
    pub(crate) const BOARD: u8 = 1;
    /// The session's meter.
    pub(crate) const METER: u8 = 2;
}

/// What a worker is to have ready before it has a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warm {
    /// Ordinals of the devices whose primary context it is to hold.
    pub contexts: Vec<u32>,
    /// Whether it is to measure how large they are.
    pub measure: bool,
    /// The supervisor's process.
    pub supervisor: u32,
}

/// What a worker is to be that looks at the devices for the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The supervisor's process.
    pub(crate) supervisor: u32,
    /// What the platform is known to be: then no driver is started.
    pub(crate) platform: Option<Vec<u8>>,
}

/// A device, and how it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauge {
    /// Its ordinal.
    pub ordinal: u32,
    /// What its driver calls it.
    pub name: String,
    /// Its UUID, as NVML writes it.
    pub uuid: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// What NVML says of it now.
    pub now: Gauges,
}

/// A context that a worker holds before it has a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextMemory {
    /// Its device.
    pub ordinal: u32,
    /// Bytes of the device that nobody has, ...
    pub free: u64,
    /// ... and all of them.
    pub total: u64,
    /// Those that the context takes, if they were measured.
    pub size: Option<u64>,
}

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The session's number.
    pub session: u64,
    /// What a lane shows to join.
    pub key: u128,
    /// How many bulk lanes to suggest to the client.
    pub lanes: u32,
    /// Only the welcome is wanted.
    pub probe: bool,
    /// Indices of the devices that the client wants to see, in order; empty for all.
    pub devices: Vec<u32>,
    /// Who the client is, in its own words.
    pub client: String,
    /// The client's process, by its own account.
    pub process: Process,
    /// Whose session it is, and what it may have.
    pub identity: Identity,
    /// With what its connections are encrypted, if they are.
    pub secure: Option<Secure>,
    /// Memory is lent: the supervisor is asked for it, and may suspend the session.
    pub lends: bool,
    /// Its client may ask NVML's questions, and nothing of a device.
    pub only_questions: bool,
    /// The supervisor's process, so that a worker can tell that it is gone.
    pub supervisor: u32,
    /// What the client is told of the socket for clients on this machine.
    pub local: Option<Local>,
    /// What the platform is known to be, for a session that needs no more than that: no driver is started for it.
    pub platform: Option<Vec<u8>>,
    /// How long the session is kept without a connection, if its client can take it up again.
    pub grace: Option<Grace>,
}

/// How long a session is kept that has lost its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// If nothing is heard of the client any more.
    pub silent: Duration,
    /// If the connection was closed, as it is when the client's process was killed.
    pub closed: Duration,
}

/// A certificate of the session's own, and its key, in DER.
#[derive(Clone, PartialEq, Eq)]
pub struct Secure {
    /// The certificate, whose fingerprint the client has been told.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}

/// Nobody finds a key in a log.
impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secure(..)")
    }
}

/// Worker to supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToSupervisor {
    /// The worker is warm; this is what a welcome would tell of the platform, or nothing if that is too long for a message, and which contexts it holds.
    Ready { snapshot: Vec<u8>, contexts: Vec<ContextMemory> },
    /// How the devices do.
    Gauges(Vec<Gauge>),
    /// The client has been welcomed and is the worker's from now on.
    Welcomed,
    /// The client cannot be served.
    Failed { code: RefusalCode, sentence: String },
    /// Keep this, and the descriptor that comes along, for other sessions that show the token.
    Share { request: u64, token: u128, kind: u8, payload: Vec<u8> },
    /// Do so no longer.
    Unshare { token: u128 },
    /// Whether no command is taken up from now on.
    Quiet { quiet: bool },
    /// The client of a suspended session has something to do.
    Wake,
    /// Room, please, for so many bytes of a device in all; the driver has refused it, perhaps.
    Room { request: u64, device: u32, bytes: u64, failed: bool },
    /// No more than that is needed of a device.
    Holds { device: u32, bytes: u64 },
    /// What took how long; how many spans there was no room for since the last time; whether no more come.
    Spans { spans: Vec<Span>, dropped: u64, last: bool },
    /// What has that token?
    Find { request: u64, token: u128, kind: u8 },
    /// The worker's supervisor has gone, it has a session, and it takes whoever connected for the next supervisor. What was kept and what is shared
    /// follows.
    Orphan,
    /// The descriptor that comes along was kept.
    Kept { tag: u8 },
    /// That was all; from here on it is as with any worker.
    Told,
    /// Something that a worker of another release says.
    Unknown(u8),
}
