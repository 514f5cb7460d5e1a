//! Introducing the client to a server.

use std::io;
use std::time::{Duration, Instant};

use outboard_transport::{Stream, Transport, read_exact_until, write_all};
use outboard_wire::Code;
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, HandshakeError, Hello, Preamble, Purpose, Refusal, VERSION, Waiting, Welcome,
};

use super::Config;
use super::bulk::Dial;
use super::moving::{self, Moved};

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address cannot be understood.
    #[error("{0}")]
    Address(io::Error),
    /// Nothing answers at the address.
    #[error("cannot reach a server at {address}: {error}; is `outboard serve` running there?")]
    Unreachable {
        /// The address tried.
        address: String,
        /// What the transport said.
        error: io::Error,
    },
    /// Something answered, and fell silent or hung up.
    #[error("{address} broke off the handshake: {error}; is it an Outboard server?")]
    BrokenOff {
        /// The address.
        address: String,
        /// What the transport said.
        error: io::Error,
    },
    /// The two sides do not understand each other.
    #[error("{address}: {error}")]
    Handshake {
        /// The address.
        address: String,
        /// Why.
        error: HandshakeError,
    },
    /// The server declined.
    #[error("the server at {address} refused: {refusal}")]
    Refused {
        /// The address.
        address: String,
        /// Its reason.
        refusal: Refusal,
    },
    /// The server has no room yet, and the program has waited for as long as it may.
    #[error("the server at {address} has no room yet: {sentence} (place {place} in the queue)")]
    Queued {
        /// The address.
        address: String,
        /// The place in the queue.
        place: u32,
        /// What is waited for.
        sentence: String,
    },
    /// The transport that was asked for cannot be had.
    #[error("OUTBOARD_TRANSPORT asks for {wanted}, but {reason}")]
    Transport {
        /// What was asked for.
        wanted: &'static str,
        /// Why it cannot be had.
        reason: String,
    },
    /// Something went wrong with the memory that this process and the server were to share.
    #[error("no memory can be shared with the server at {address}: {error}")]
    Memory {
        /// The address.
        address: String,
        /// What went wrong.
        error: io::Error,
    },
    /// This process lacks something: threads, descriptors.
    #[error("cannot start the connection's thread: {0}")]
    Local(io::Error),
}

impl ConnectError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            ConnectError::Address(_) => Code::BadAddress,
            ConnectError::Unreachable { address, error } => unreachable(address, error),
            ConnectError::BrokenOff { .. } => Code::NotOutboard,
            ConnectError::Handshake { error, .. } => error.code(),
            ConnectError::Queued { .. } => Code::InQueue,
            ConnectError::Refused { refusal, .. } => refusal.error(),
            ConnectError::Transport { .. } => Code::NoTransport,
            ConnectError::Memory { .. } => Code::NoSharedMemory,
            ConnectError::Local(_) => Code::ClientResources,
        }
    }
}

/// Why nothing answers at an address.
pub fn unreachable(address: &str, error: &io::Error) -> Code {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Code::NothingListens,
        io::ErrorKind::NotFound if address.starts_with("unix:") => Code::NoSocket,
        io::ErrorKind::NotFound => Code::UnknownHost,
        io::ErrorKind::PermissionDenied if address.starts_with("unix:") => Code::SocketDenied,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Code::NoAnswer,
        _ => Code::Unreachable,
    }
}

/// Connects and introduces the client.
pub(super) fn connect(
    transport: &dyn Transport,
    address: &str,
    hello: &Hello,
    config: &Config,
) -> Result<(Moved, Welcome), ConnectError> {
    let stream = transport.connect(address, config.timeout).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => ConnectError::Address(error),
        _ => ConnectError::Unreachable { address: address.to_owned(), error },
    })?;
    let deadline = Instant::now() + config.timeout;
    let welcome = handshake_in_turn(&*stream, address, hello, deadline, queue_patience(), &mut |waiting| {
        // A program that uses CUDA expects no words from its driver; who wants them sets the variable.
        if std::env::var_os("OUTBOARD_LOG").is_some() {
            eprintln!("outboard: place {} in the queue of {address}: {}", waiting.place, waiting.sentence);
        }
    })?;
    let moved = moving::settle(stream, address, hello, &welcome, config)?;
    Ok((moved, welcome))
}

/// What makes a lane of the session that `welcome` opened.
pub(super) fn dial<T: Transport + 'static>(
    transport: T,
    address: &str,
    hello: &Hello,
    welcome: &Welcome,
    config: &Config,
) -> Dial {
    let purpose = Purpose::Lane { session: welcome.session, key: welcome.key };
    let hello = Hello { purpose, ..hello.clone() };
    let (address, timeout) = (address.to_owned(), config.timeout);
    Box::new(move || {
        let stream = transport.connect(&address, timeout)?;
        handshake(&*stream, &address, &hello, Instant::now() + timeout).map_err(io::Error::other)?;
        Ok(stream)
    })
}

/// Says hello on a connected stream and reads the answer. `address` is for messages.
pub fn handshake(
    stream: &dyn Stream,
    address: &str,
    hello: &Hello,
    deadline: Instant,
) -> Result<Welcome, ConnectError> {
    handshake_in_turn(stream, address, hello, deadline, None, &mut |_| ())
}

/// How long the environment says that a program may wait in a server's queue: `OUTBOARD_QUEUE_TIMEOUT`, in seconds.
pub fn queue_patience() -> Option<Duration> {
    let seconds: f64 = std::env::var("OUTBOARD_QUEUE_TIMEOUT").ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// As [`handshake`], with a server that may have a queue, in which this waits no longer than `patience`. `waits` is told of each place there.
pub fn handshake_in_turn(
    stream: &dyn Stream,
    address: &str,
    hello: &Hello,
    deadline: Instant,
    patience: Option<Duration>,
    waits: &mut dyn FnMut(&Waiting),
) -> Result<Welcome, ConnectError> {
    let queued_at = Instant::now();
    let broken_off = |error| ConnectError::BrokenOff { address: address.to_owned(), error };
    let malformed = |error| ConnectError::Handshake { address: address.to_owned(), error };
    // A server that refuses for want of room may do so before it has read the hello; its answer is there to read.
    let written = write_all(stream, &hello.encode());
    let mut written = written.err();
    let renewed = deadline.saturating_duration_since(Instant::now());
    let mut deadline = deadline;
    loop {
        let mut head = [0; Preamble::SIZE];
        read_exact_until(stream, &mut head, deadline).map_err(|error| broken_off(written.take().unwrap_or(error)))?;
        let preamble = Preamble::decode(&head, ANSWER_LIMIT).map_err(malformed)?;
        let mut body = vec![0; preamble.len as usize];
        read_exact_until(stream, &mut body, deadline).map_err(broken_off)?;
        match Answer::decode(&preamble, &body, VERSION).map_err(malformed)? {
            Answer::Welcome(welcome) => return Ok(welcome),
            Answer::Refusal(refusal) => return Err(ConnectError::Refused { address: address.to_owned(), refusal }),
            // A server that has a client wait says so again and again.
            Answer::Waiting(waiting) => {
                if patience.is_some_and(|patience| queued_at.elapsed() >= patience) {
                    let Waiting { place, sentence } = waiting;
                    return Err(ConnectError::Queued { address: address.to_owned(), place, sentence });
                }
                waits(&waiting);
                deadline = Instant::now() + renewed;
            }
        }
    }
}
