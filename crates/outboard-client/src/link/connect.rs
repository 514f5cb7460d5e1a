//! Introducing the client to a server.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::tls::{self, Anchor, Fingerprint};
use outboard_transport::{Endpoint, Memory, Stream, Transport, read_exact_until, write_all};
use outboard_wire::handshake::auth::{PROOF, Proof, TOKEN, proven};
use outboard_wire::handshake::lease::LEASE;
use outboard_wire::handshake::{Answer, Hello, MAGIC, Waiting, Welcome};
use rustls::ClientConfig;

use super::config::Config;
use super::error::ConnectError;
use super::movable::{Movable, NOT_USED, Settled};
use super::security::{Security, SecurityError, of_tls};
use super::{moving, region};
use crate::speech;

/// For what the certificate of a server behind vsock is to be valid, where an authority signs it:
/// numbers of machines are no names.
const NAME_BEHIND_VSOCK: &str = "vsock";

/// A session that has been welcomed.
pub(super) struct Connected {
    pub(super) stream: Arc<dyn Stream>,
    /// The memory shared with the worker, if the session has moved to it.
    pub(super) memory: Option<Memory>,
    pub(super) welcome: Welcome,
    /// With what further connections are encrypted, if they are.
    pub(super) secured: Option<Secured>,
    /// What moves further connections, if something does.
    pub(super) movable: Option<Arc<Movable>>,
    /// What the session might use and does not, and why.
    pub(super) unused: Option<String>,
}

/// By what the client recognises the worker that its session belongs to, and shows that it is its
/// client.
#[derive(Clone)]
pub struct Secured {
    config: Arc<ClientConfig>,
    fingerprint: Fingerprint,
    key: u128,
}

/// Connects and introduces the client. The hello tells of the device, if there is one.
pub(super) fn connect(
    transport: &dyn Transport,
    address: &str,
    hello: &Hello,
    config: &Config,
    device: region::Found,
) -> Result<Connected, ConnectError> {
    let stream =
        transport.connect(address, config.timeout).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => ConnectError::Address(error),
            _ => ConnectError::Unreachable { address: address.to_owned(), error },
        })?;
    let deadline = Instant::now() + config.timeout;
    let mut waits = |waiting: &Waiting| {
        speech::say(format_args!(
            "place {} in the queue of {address}: {}",
            waiting.place, waiting.sentence
        ));
    };
    let turn = Turn { patience: queue_patience(), waits: &mut waits };
    let Opened { stream, welcome, secured, .. } =
        open(stream, address, hello, &config.security, deadline, turn)?;
    let (movable, unused) = moving::movable(&welcome, address, config, device)?;
    let may_move = (movable.as_ref(), secured.as_ref());
    let ((stream, memory), stays) =
        moving::settle(stream, address, hello, &welcome, config, may_move)?;
    // Nothing is better than the server's own memory.
    let unused = unused.or(stays).filter(|_| memory.is_none()).map(|unused| unused.to_string());
    if let Some(unused) = unused.as_ref().filter(|_| config.talks) {
        speech::say(format_args!("the session with {address} {NOT_USED} {unused}"));
    }
    let movable = movable.map(Arc::new);
    Ok(Connected { stream, memory, welcome, secured, movable, unused })
}

/// A connection whose hello was answered with a welcome.
pub struct Opened {
    /// It, or what it has become.
    pub stream: Arc<dyn Stream>,
    /// The welcome.
    pub welcome: Welcome,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// With what further connections of the session are encrypted, if there is a session and they
    /// are.
    pub secured: Option<Secured>,
}

/// A connection over which a hello was answered.
enum Greeted {
    Plain(Arc<dyn Stream>),
    Encrypted(Arc<tls::TlsStream>),
}

/// Says hello to whatever the client has connected to, and waits for the answer: encrypts if need
/// be, and shows who it is.
fn greet(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    security: &Security,
    deadline: Instant,
    turn: &mut Turn<'_>,
) -> Result<(Greeted, Answer), ConnectError> {
    let greeted = greet_whoever_it_is(stream, address, hello, security, deadline, turn);
    greeted.map_err(|error| security.explain(error))
}

fn greet_whoever_it_is(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    security: &Security,
    deadline: Instant,
    turn: &mut Turn<'_>,
) -> Result<(Greeted, Answer), ConnectError> {
    let mut hello = hello.clone();
    let config = security.encryption(&*stream, address)?;
    if let Some(token) =
        security.token_for(&mut hello.purpose, &*stream, address, config.is_some())?
    {
        hello.more.set(TOKEN, &token);
    }
    let lease = security.lease_for(&mut hello.purpose, &*stream, address, config.is_some())?;
    let say = |certificate: Option<Fingerprint>| {
        if let Some(lease) = &lease {
            hello.more.set(LEASE, &lease.shown(certificate));
        }
        hello
    };
    let Some(config) = config else {
        let answer = say_in_turn(&*stream, address, &say(None), deadline, turn)?;
        return Ok((Greeted::Plain(stream), answer));
    };
    let host = match address.parse() {
        Ok(Endpoint::Tcp(address)) => address.host,
        Ok(Endpoint::Vsock(_)) => NAME_BEHIND_VSOCK.to_owned(),
        _ => return Err(ConnectError::Address(io::ErrorKind::InvalidInput.into())),
    };
    let first = |certificate| Cow::Owned(say(certificate).encode());
    let encrypted = encrypt(stream, address, config, &host, first, deadline)?;
    let answer = answer(&*encrypted, address, deadline, None, turn)?;
    Ok((Greeted::Encrypted(encrypted), answer))
}

/// Asks a server for a file, and returns the connection from which its bytes are to be read, and
/// how many it says there are.
pub fn ask_for_file(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    security: &Security,
    deadline: Instant,
) -> Result<(Arc<dyn Stream>, u64), ConnectError> {
    let mut turn = Turn { patience: Some(Duration::ZERO), waits: &mut |_| () };
    match greet(stream, address, hello, security, deadline, &mut turn)? {
        (Greeted::Plain(stream), Answer::File(bytes)) => Ok((stream, bytes)),
        (Greeted::Encrypted(stream), Answer::File(bytes)) => Ok((stream, bytes)),
        _ => Err(unexpected(address)),
    }
}

/// Introduces the client to whatever it has connected to, which welcomes it.
pub fn open(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    security: &Security,
    deadline: Instant,
    mut turn: Turn<'_>,
) -> Result<Opened, ConnectError> {
    let greeted = greet(stream, address, hello, security, deadline, &mut turn)?;
    let (encrypted, secure) = match greeted {
        (Greeted::Encrypted(encrypted), Answer::Secure(secure)) => (encrypted, secure),
        (Greeted::Encrypted(stream), Answer::Welcome(welcome)) => {
            return Ok(Opened { stream, welcome, encrypted: true, secured: None });
        }
        (Greeted::Plain(stream), Answer::Welcome(welcome)) => {
            return Ok(Opened { stream, welcome, encrypted: false, secured: None });
        }
        _ => return Err(unexpected(address)),
    };
    // A worker continues now, and the connection is encrypted anew.
    let below = encrypted.leave(deadline).map_err(|error| broken(address, error))?;
    let fingerprint = Fingerprint(secure.fingerprint);
    let config =
        tls::client_config(Anchor::Pinned(fingerprint), None).map_err(SecurityError::Unfit);
    let config = config.map_err(ConnectError::Security)?;
    let secured = Secured { config, fingerprint, key: secure.key };
    let stream = secured.take_over(below, address, deadline)?;
    match answer(&*stream, address, deadline, None, &mut Turn::without_end(&mut |_| ()))? {
        Answer::Welcome(welcome) => {
            Ok(Opened { stream, welcome, encrypted: true, secured: Some(secured) })
        }
        _ => Err(unexpected(address)),
    }
}

/// Introduces one more connection of a session, whose key is in the hello. If the session's
/// connections may move, this one does, as which of them it is.
pub fn join(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    secured: Option<&Secured>,
    movable: Option<(&Movable, Option<u32>)>,
    deadline: Instant,
) -> Result<(Arc<dyn Stream>, Welcome), ConnectError> {
    let stream = match secured {
        None => {
            write_all(&*stream, &hello.encode()).map_err(|error| broken(address, error))?;
            stream
        }
        Some(secured) => show(stream, address, hello, secured, deadline)?,
    };
    let stream = match movable {
        None => stream,
        Some((movable, which)) => {
            let (stream, _): Settled = movable.settle(stream, secured, which, address, deadline)?;
            stream
        }
    };
    match answer(&*stream, address, deadline, None, &mut Turn::without_end(&mut |_| ()))? {
        Answer::Welcome(welcome) => Ok((stream, welcome)),
        _ => Err(unexpected(address)),
    }
}

/// Says hello with a proof in place of the session's key, and encrypts the connection.
fn show(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    secured: &Secured,
    deadline: Instant,
) -> Result<Arc<dyn Stream>, ConnectError> {
    let mut hello = hello.clone();
    let number = hello.purpose.number();
    if let Some((session, key)) = hello.purpose.keyed() {
        let nonce = draw().map_err(|error| broken(address, error))?;
        let tag = tls::tag(std::mem::take(key), &proven(session, number, nonce, &hello.more));
        hello.more.set(PROOF, &Proof { nonce, tag });
    }
    // The supervisor reads this and no more; what follows is the worker's.
    write_all(&*stream, &hello.encode()).map_err(|error| broken(address, error))?;
    Ok(secured.take_over(stream, address, deadline)?)
}

impl Secured {
    /// The certificate of the session.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Encrypts a connection to the session's worker, and shows it the key.
    pub(super) fn take_over(
        &self,
        below: Arc<dyn Stream>,
        address: &str,
        deadline: Instant,
    ) -> Result<Arc<tls::TlsStream>, ConnectError> {
        encrypt(
            below,
            address,
            Arc::clone(&self.config),
            tls::SESSION,
            |_| Cow::Owned(self.key.to_le_bytes().to_vec()),
            deadline,
        )
    }
}

impl std::fmt::Debug for Secured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secured").finish_non_exhaustive()
    }
}

/// Encrypts a connection, and sends what `first` makes of the server's certificate over it.
fn encrypt<'a>(
    below: Arc<dyn Stream>,
    address: &str,
    config: Arc<ClientConfig>,
    host: &str,
    first: impl FnOnce(Option<Fingerprint>) -> Cow<'a, [u8]>,
    deadline: Instant,
) -> Result<Arc<tls::TlsStream>, ConnectError> {
    let plain = Arc::clone(&below);
    tls::connect_and_say(below, config, host, first, deadline).map_err(|error| {
        match tls::in_the_clear(&error) {
            // It declines, in the clear because it does not encrypt, or has no time to.
            Some(said) if said.starts_with(&MAGIC) => {
                // Nobody waits for who is not known.
                let mut turn = Turn { patience: Some(Duration::ZERO), waits: &mut |_| () };
                match answer(&*plain, address, deadline, Some(said), &mut turn) {
                    Err(ConnectError::Refused { address, refusal }) => {
                        ConnectError::RefusedInTheClear { address, refusal }
                    }
                    Ok(_) | Err(ConnectError::Queued { .. }) => {
                        ConnectError::NotEncrypted { address: address.to_owned() }
                    }
                    Err(error) => error,
                }
            }
            Some(_) => ConnectError::NotEncrypted { address: address.to_owned() },
            None => broken(address, error),
        }
    })
}

pub(super) fn broken(address: &str, error: io::Error) -> ConnectError {
    let address = address.to_owned();
    match of_tls(&error) {
        // An error that the client itself found has its own sentence.
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(found))) => {
            ConnectError::NotTrusted { address, error: found.0.to_string() }
        }
        Some(error) => ConnectError::NotTrusted { address, error: error.to_string() },
        None => ConnectError::BrokenOff { address, error },
    }
}

fn unexpected(address: &str) -> ConnectError {
    let error = io::Error::new(io::ErrorKind::InvalidData, "the answer is not one to this hello");
    ConnectError::BrokenOff { address: address.to_owned(), error }
}

fn draw() -> io::Result<u128> {
    outboard_transport::random().map(u128::from_le_bytes)
}

/// Says hello in the clear on a connected stream and reads the answer. `address` is for messages.
pub fn handshake(
    stream: &dyn Stream,
    address: &str,
    hello: &Hello,
    deadline: Instant,
) -> Result<Welcome, ConnectError> {
    match say_in_turn(stream, address, hello, deadline, &mut Turn::without_end(&mut |_| ()))? {
        Answer::Welcome(welcome) => Ok(welcome),
        _ => Err(unexpected(address)),
    }
}

/// How long the environment says that a program may wait in a server's queue:
/// `OUTBOARD_QUEUE_TIMEOUT`, in seconds.
pub fn queue_patience() -> Option<Duration> {
    let seconds: f64 = std::env::var("OUTBOARD_QUEUE_TIMEOUT").ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// How a client waits in a server's queue.
pub struct Turn<'a> {
    /// No longer than this.
    pub patience: Option<Duration>,
    /// Told of each place there.
    pub waits: &'a mut dyn FnMut(&Waiting),
}

impl<'a> Turn<'a> {
    fn without_end(waits: &'a mut dyn FnMut(&Waiting)) -> Turn<'a> {
        Turn { patience: None, waits }
    }
}

/// Says hello in the clear and reads the answer of a server that may have a queue.
fn say_in_turn(
    stream: &dyn Stream,
    address: &str,
    hello: &Hello,
    deadline: Instant,
    turn: &mut Turn<'_>,
) -> Result<Answer, ConnectError> {
    // A server that refuses for want of room may do so before it has read the hello; its answer is
    // there to read.
    let written = write_all(stream, &hello.encode());
    answer(stream, address, deadline, None, turn).map_err(|error| match (error, written) {
        (ConnectError::BrokenOff { address, .. }, Err(error)) => {
            ConnectError::BrokenOff { address, error }
        }
        (error, _) => error,
    })
}

/// Reads the answer to a hello, of which `begun` may have come already. It is no refusal, and
/// nothing that another follows on this stream.
fn answer(
    stream: &dyn Stream,
    address: &str,
    deadline: Instant,
    begun: Option<&[u8]>,
    turn: &mut Turn<'_>,
) -> Result<Answer, ConnectError> {
    let malformed = |error| ConnectError::Handshake { address: address.to_owned(), error };
    let queued_at = Instant::now();
    let renewed = deadline.saturating_duration_since(queued_at);
    let mut deadline = deadline;
    let mut begun = begun.unwrap_or_default();
    let mut read = |room: &mut [u8], deadline| {
        let here = begun.len().min(room.len());
        room[..here].copy_from_slice(&begun[..here]);
        begun = &begun[here..];
        read_exact_until(stream, &mut room[here..], deadline)
            .map_err(|error| broken(address, error))
    };
    loop {
        match Answer::read(|room| read(room, deadline), malformed)? {
            Answer::Refusal(refusal) => {
                return Err(ConnectError::Refused { address: address.to_owned(), refusal });
            }
            // A server that has a client wait says so again and again.
            Answer::Waiting(waiting) => {
                if turn.patience.is_some_and(|patience| queued_at.elapsed() >= patience) {
                    let Waiting { place, sentence } = waiting;
                    return Err(ConnectError::Queued {
                        address: address.to_owned(),
                        place,
                        sentence,
                    });
                }
                (turn.waits)(&waiting);
                deadline = Instant::now() + renewed;
            }
            answer => return Ok(answer),
        }
    }
}
