//! A worker's connections: commands in, replies out.
//!
//! The process's main thread takes commands in their one order and hands each to the [`Handler`], which must not
//! block in it for long: waits for the device belong on helper threads, which answer through a clone of the
//! [`Replier`]. When the client or the supervisor goes, the process ends at once: the system and the driver clean up
//! better than any code here could.

mod arrival;
pub mod bulk;
mod connection;
mod ending;
mod gate;
mod home;
mod moving;
mod pace;
mod registry;
mod replier;
mod requests;
mod secure;
mod watch;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_session::server::Incoming;
use outboard_transport::{Interest, PEER_CHECK, Patience, Readiness, Spin, SpinLimits, Stream, tcp, write_all};
use outboard_wire::frame::CommandHeader;
use outboard_wire::handshake::resume::{RESUME, Terms};
use outboard_wire::handshake::{Extensions, Refusal, RefusalCode, VERSION, Welcome};

use crate::control::{self, ToSupervisor};
use crate::meter;
use crate::sandbox::{self, Sandbox};
use arrival::Arrival;
use connection::{Connection, Current, End, Next};
use ending::Ending;

pub use crate::control::{Start, Warm};
pub use bulk::{Bulk, Sink};
use moving::Moving;
pub use outboard_session::server::Command;
use pace::Pace;
pub use registry::Registry;
pub use replier::Replier;
pub use requests::{Asked, Requests};
use secure::Secure;

/// What a worker does with its client's commands.
pub trait Handler {
    /// What the client is told of the platform in the welcome, encoded.
    fn snapshot(&mut self) -> Vec<u8>;

    /// Carries out one command. Commands come in the session's order, each once. If it
    /// [`wants_reply`](Command::wants_reply), exactly one reply must follow, now or later.
    fn command(&mut self, command: Command<'_>, replier: &Replier);

    /// Answers are about to be written.
    fn answering(&mut self) {}

    /// No further command is at hand for the moment; called once each time before waiting for one.
    fn drained(&mut self) {}

    /// Looks after what it waits for, between commands and while there is none; when it wants to be called again.
    fn look(&mut self) -> Again {
        Again::Never
    }

    /// The client is gone; the process ends when this returns.
    fn closed(&mut self) {}
}

/// When a handler wants to look again after what it waits for, if no command comes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It waits for nothing.
    Never,
    /// At once.
    Now,
    /// After so long.
    After(Duration),
}

impl Again {
    /// What suits two that wait.
    pub fn or(self, other: Again) -> Again {
        match (self, other) {
            (Again::Now, _) | (_, Again::Now) => Again::Now,
            (Again::After(one), Again::After(other)) => Again::After(one.min(other)),
            (Again::Never, again) | (again, Again::Never) => again,
        }
    }
}

/// The dispatcher never spins for longer than this for the next command: then the client does something else.
const LONGEST_IDLE_SPIN: Duration = Duration::from_millis(1);
/// After so many looks at the device, it is the client's turn again, where that is a system call.
const LOOKS: u32 = 4;
/// In nanoseconds.
const TIMER_SLACK: u64 = 1000;
/// Replies of this many bytes are written even if more calls are at hand.
const ENOUGH_REPLIES: usize = 64 << 10;
/// A client is told how far its commands were taken over after this many, or so many bytes, if no reply told it.
const ACKNOWLEDGE_AFTER: u64 = 16 << 10;
const ACKNOWLEDGE_BYTES: usize = 256 << 10;
/// How often the dispatcher looks after its waits while there is no connection.
const LOOK: Duration = Duration::from_millis(20);

/// Exit codes, for the supervisor's log.
const SERVED: i32 = 0;
const REFUSED: i32 = 3;
const BROKEN: i32 = 4;
const PANICKED: i32 = 101;

/// What a worker process makes of itself.
pub trait Build {
    /// What can be there before there is a client.
    type Prepared;
    /// What serves the client.
    type Handler: Handler;

    /// Prepares for any client; with `warm`, so that a later one finds most of a start-up done.
    fn prepare(self, warm: Option<&Warm>) -> Result<Self::Prepared, Refusal>;

    /// Prepares for a client that only asks about the platform, which is as described: what a [`snapshot`](Build::snapshot) said.
    fn describe(self, platform: &[u8]) -> Result<Self::Prepared, Refusal>
    where
        Self: Sized,
    {
        let _ = platform;
        self.prepare(None)
    }

    /// What a welcome would say of the platform to a client that sees all devices.
    fn snapshot(prepared: &Self::Prepared) -> Vec<u8>;

    /// Makes the handler; a refusal is what the client gets to read.
    fn build(prepared: Self::Prepared, start: &Start) -> Result<Self::Handler, Refusal>;
}

/// The main function of a worker process: serves the client that the supervisor hands over, and ends the process.
///
/// It must have one thread still.
pub fn run(sandbox: &Sandbox, build: impl Build) -> ! {
    end_with_any_panic();
    let code = match serve(sandbox, build) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the worker failed");
            BROKEN
        }
    };
    exit(code)
}

fn serve<B: Build>(sandbox: &Sandbox, build: B) -> io::Result<i32> {
    let control = take_standard_input()?;
    // Else the system may wake who sleeps for some microseconds 50 microseconds late. Where it does not let us, it does.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(TIMER_SLACK));
    let confined = sandbox.before_the_driver();
    watch::die_with_the_supervisor()?;
    tcp::keepalive_from_env();
    let Some(Arrival { prepared, start, connection, home }) = arrival::wait(build, &control)? else {
        return Ok(SERVED);
    };
    let session = start.session;
    let unconfined =
        |error: sandbox::Incomplete| Refusal { code: RefusalCode::WorkerFailed, sentence: error.to_string() };
    let built = confined.map_err(unconfined).and(prepared).and_then(|prepared| B::build(prepared, &start));
    let built = built.and_then(|handler| sandbox.before_the_client().map_err(unconfined).map(|()| handler));
    let mut handler = match built {
        Ok(handler) => handler,
        Err(Refusal { code, sentence }) => {
            control::send(control.as_fd(), &ToSupervisor::Failed { code, sentence }, None)?;
            return Ok(REFUSED);
        }
    };
    let (stream, on_this_machine) = moving::stream(connection)?;
    let secure = Secure::new(&start)?;
    let grace = start.grace.filter(|_| on_this_machine.is_none());
    let mut more = Extensions::default();
    if let Some(grace) = grace {
        more.set(RESUME, &Terms { grace: grace.silent });
    }
    let welcome = Welcome {
        version: VERSION,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        session,
        key: start.key,
        lanes: start.lanes,
        snapshot: handler.snapshot(),
        local: start.local.clone(),
        more,
    };
    let message = welcome.encode();
    if message.len() > outboard_wire::handshake::ANSWER_LIMIT {
        let sentence = "the server's description of its devices is too long for a welcome".to_owned();
        let failed = ToSupervisor::Failed { code: RefusalCode::WorkerFailed, sentence };
        control::send(control.as_fd(), &failed, None)?;
        return Ok(REFUSED);
    }
    let stream = match &secure {
        None => stream,
        Some(secure) => {
            // Only then does the supervisor send the client here.
            control::send(control.as_fd(), &ToSupervisor::Welcomed, None)?;
            match secure.accept(stream) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::info!(session, %error, "the client did not come over");
                    return Ok(SERVED);
                }
            }
        }
    };
    // Who has been welcomed is served, whatever becomes of the supervisor.
    watch::outlive_the_supervisor()?;
    write_all(&*stream, &message)?;
    if secure.is_none()
        && let Err(error) = control::send(control.as_fd(), &ToSupervisor::Welcomed, None)
        && !control::has_gone(&error)
    {
        return Err(error);
    }
    if start.probe {
        return Ok(SERVED);
    }
    let pace = start.identity.limits.bandwidth.map(Pace::new);
    let bulk = Bulk::new(pace);
    let again = Welcome { snapshot: Vec::new(), local: None, more: Extensions::default(), ..welcome };
    let control = Arc::new(control);
    let registry = Registry::new(Arc::clone(&control), start.lends);
    let moving = Arc::new(Moving::new()?);
    let connection = Arc::new(Connection::new(Arc::clone(&stream), grace));
    let mut replier = Replier::new(Arc::clone(&connection), bulk.clone(), registry.clone());
    let ending = Arc::new(Ending::default());
    let further = watch::Further {
        welcome: again,
        secure,
        bulk: bulk.clone(),
        registry,
        moving: Arc::clone(&moving),
        replier: replier.clone(),
        ending: Arc::clone(&ending),
        home,
    };
    watch::supervisor(control, Arc::new(further))?;
    let (stream, memory) = match moving.settle(stream, on_this_machine) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(SERVED),
        settled => settled?,
    };
    meter::page().set_transport(stream.transport());
    if let Some(memory) = memory {
        connection.settle(stream);
        replier.share(memory);
    }
    watch::client(Arc::clone(&connection), bulk)?;
    ending.serve(&replier);
    let result = dispatch(&connection, &replier, &mut handler);
    super::spans::finish();
    handler.closed();
    match result {
        Ok(()) => {
            tracing::debug!(session, "the client has gone");
            Ok(SERVED)
        }
        Err(error) => {
            tracing::warn!(session, client = start.client, %error, "the session ends");
            Ok(BROKEN)
        }
    }
}

/// Hands commands to the handler until the client is gone.
fn dispatch(connection: &Connection, replier: &Replier, handler: &mut impl Handler) -> io::Result<()> {
    let limits = SpinLimits::from_env();
    let patience = Patience::new(limits.least, limits.most.min(LONGEST_IDLE_SPIN));
    let gate = replier.registry().gate();
    let mut incoming = Incoming::new();
    let mut current = connection.current();
    loop {
        let error = match converse(connection, &current, &mut incoming, replier, handler, &patience) {
            Ok(()) => io::ErrorKind::UnexpectedEof.into(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(error) => error,
        };
        connection.lose(current.epoch, End::of(&error));
        loop {
            match connection.next(current.epoch, LOOK) {
                Next::NotYet => {
                    if handler.look() == Again::Never
                        && let Some(gate) = gate
                    {
                        gate.leave();
                    }
                }
                Next::Over if is_an_end(&error) => return Ok(()),
                Next::Over => return Err(error),
                Next::Connected { current: next, told } => {
                    incoming.resume(told);
                    current = next;
                    break;
                }
            }
        }
    }
}

/// Whether an error of a connection only says that the client is gone. One that was killed with replies unread resets the connection.
fn is_an_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Hands commands to the handler until the connection ends.
fn converse(
    connection: &Connection,
    current: &Current,
    incoming: &mut Incoming,
    replier: &Replier,
    handler: &mut impl Handler,
    patience: &Patience,
) -> io::Result<()> {
    // Through memory that both share no bytes travel.
    let pace = replier.bulk().pace().filter(|_| replier.memory().is_none());
    let gate = replier.registry().gate();
    let mut unacknowledged = 0;
    // Whether the handler has been given anything since it was told that there is no more. A session that goes on may be suspended still.
    let mut busy = current.epoch == 0;
    loop {
        while let Some(command) = incoming.next_command().map_err(invalid)? {
            busy = true;
            if !connection.take(command.seq, current.epoch) {
                return Ok(());
            }
            if let Some(pace) = pace {
                pace.note_read(CommandHeader::SIZE + command.payload.len());
            }
            replier.taken(command.seq);
            handler.command(command, replier);
            handler.look();
            let more_calls =
                || incoming.peek().is_some_and(|next| next.flags & outboard_wire::frame::flags::WANTS_REPLY != 0);
            if replier.pending() && (replier.pending_bytes() >= ENOUGH_REPLIES || !more_calls()) {
                handler.answering();
                replier.flush()?;
            }
        }
        replier.received(incoming.acknowledged()).map_err(invalid)?;
        if incoming.is_leaving() {
            connection.leave();
        }
        let commands = if unacknowledged >= ACKNOWLEDGE_BYTES { 1 } else { ACKNOWLEDGE_AFTER };
        if replier.acknowledge_after(commands) {
            unacknowledged = 0;
        }
        replier.flush()?;
        if busy {
            handler.drained();
            busy = false;
        }
        // What the handler said meanwhile must not wait for the next command.
        replier.flush()?;
        if let Some(pace) = pace {
            pace.catch_up();
        }
        let look = || {
            let again = handler.look();
            if let Some(gate) = gate.filter(|_| again == Again::Never) {
                gate.leave();
            }
            (again, replier.flush())
        };
        unacknowledged += read(&*current.stream, incoming, patience, look)?;
        if let Some(gate) = gate {
            gate.enter(|| replier.registry().wake());
        }
    }
}

/// Reads what the client sent, waiting for something; how much it was. Meanwhile `look`, as often as it wants to be called.
fn read(
    stream: &dyn Stream,
    incoming: &mut Incoming,
    patience: &Patience,
    mut look: impl FnMut() -> (Again, io::Result<()>),
) -> io::Result<usize> {
    let window = patience.window();
    let mut spin = Spin::new(stream, window);
    // Since when it has slept instead of spinning, and when the peer was last checked meanwhile.
    let mut slow: Option<(Instant, Instant)> = None;
    let mut before = Again::Never;
    // To ask a socket takes longer than to ask the device.
    let looks = if stream.capabilities().quick { 1 } else { LOOKS };
    loop {
        match stream.read(incoming.buffer().room()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                meter::page().heard(count);
                incoming.buffer().filled(count);
                if let Some((since, _)) = slow {
                    patience.waited(window + since.elapsed());
                }
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let mut looks = looks;
        let (again, written) = loop {
            let (again, written) = look();
            looks -= 1;
            if looks == 0 || again != Again::Now || written.is_err() {
                break (again, written);
            }
        };
        written?;
        if again == Again::Never && matches!(before, Again::After(_)) {
            // Who has got an answer goes on.
            slow = None;
            spin.restart();
        }
        before = again;
        if again == Again::Now {
            // What is waited for ends soon, or is soon looked at less often; then the client has its say.
            spin.restart();
            if !spin.again() {
                std::thread::yield_now();
            }
            continue;
        }
        if spin.again() {
            continue;
        }
        let (_, checked) = slow.get_or_insert_with(|| (Instant::now(), Instant::now()));
        let timeout = if let Again::After(time) = again { time.min(PEER_CHECK) } else { PEER_CHECK };
        if stream.wait(Interest::READ, None, Some(timeout))? == Readiness::default()
            && (timeout == PEER_CHECK || checked.elapsed() >= PEER_CHECK)
        {
            stream.check_peer()?;
            *checked = Instant::now();
        }
    }
}

fn invalid(error: outboard_session::ProtocolError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Moves the supervisor's socket away from descriptor 0, so that nothing that reads standard input finds it.
fn take_standard_input() -> io::Result<OwnedFd> {
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(control)
}

/// A worker with a dead thread would leave its client waiting for ever; without a worker, the client gets an error.
fn end_with_any_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if tracing::dispatcher::has_been_set() {
            tracing::error!(panic = %info, "the worker ends");
        } else {
            report(info);
        }
        exit(PANICKED)
    }));
}

/// Ends this session and its process: the client broke the protocol.
pub(crate) fn end_session() -> ! {
    exit(BROKEN)
}

/// Ends the process without running exit handlers: the driver's may wait for the device.
fn exit(code: i32) -> ! {
    // SAFETY: _exit has no preconditions; no destructor of this process needs to run.
    unsafe { libc::_exit(code) }
}
