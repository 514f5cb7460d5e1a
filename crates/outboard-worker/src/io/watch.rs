//! Notices the end of the client or the supervisor, even while the main thread is in a driver call.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::{Interest, PEER_CHECK, Readiness, Stream, tcp, tls, unix, write_all};
use outboard_wire::handshake::Welcome;
use outboard_wire::handshake::beats::Beats;
use outboard_wire::handshake::resume::{Point, RESUME};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::bulk::Bulk;
use super::connection::{Connection, Current, End, Next};
use super::ending::Ending;
use super::exit::{BROKEN, SERVED, exit};
use super::home::Home;
use super::opening::{Opening, Whose};
use super::registry::Registry;
use super::replier::Replier;
use super::stream_switch::{self, StreamSwitch};
use outboard_control::messages::{self, ToWorker};

/// How long the main thread has to end the process its own way after the client is gone.
const GRACE: Duration = Duration::from_millis(300);

/// How often a worker says that it lives: three times within the time after which a silent peer is
/// gone.
pub(super) fn beats() -> Beats {
    Beats { period: (tcp::keepalive() / 3).clamp(Duration::from_secs(1), Duration::from_secs(5)) }
}

/// The kernel kills this process when the thread that started it ends: the supervisor has only one.
pub(super) fn die_with_the_supervisor() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The session continues without the supervisor, unless the thread that watches the supervisor
/// decides otherwise.
pub(super) fn outlive_the_supervisor() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Starts the thread that watches the client's connection, and says over it that this process
/// lives.
pub(super) fn client(connection: Arc<Connection>, replier: Replier) -> io::Result<()> {
    spawn("watch-client", move || watch_client(&connection, &replier))
}

/// What later connections of the session need.
pub(super) struct Further {
    /// The answer to the client over them.
    pub(super) welcome: Welcome,
    /// How they are opened.
    pub(super) opening: Opening,
    pub(super) bulk: Bulk,
    pub(super) registry: Registry,
    pub(super) switch: Arc<StreamSwitch>,
    pub(super) replier: Replier,
    pub(super) ending: Arc<Ending>,
    /// The session's home, where it waits for the next supervisor.
    pub(super) home: Home,
}

/// Starts the thread that watches the supervisor's socket.
pub(super) fn supervisor(control: Arc<OwnedFd>, further: Arc<Further>) -> io::Result<()> {
    spawn("watch-supervisor", move || {
        further.watch(control);
        exit(SERVED)
    })
}

/// Sees the connection end, and the session when no other has come in time.
fn watch_client(connection: &Connection, replier: &Replier) {
    let mut current = connection.current();
    loop {
        let end = watch(&current, replier);
        // The main thread may be about to find out, and with it what the client said last.
        connection.wait_for_loss(current.epoch, GRACE);
        connection.lose(current.epoch, end);
        current = loop {
            match connection.next(current.epoch, PEER_CHECK) {
                Next::Connected { current, .. } => break current,
                Next::NotYet => {}
                Next::Over => {
                    std::thread::sleep(GRACE);
                    exit(SERVED)
                }
            }
        };
    }
}

/// Waits until a connection has ended. Transfers on lanes are checked meanwhile.
fn watch(current: &Current, replier: &Replier) -> End {
    let stream = &*current.stream;
    let beat = beats().period / 2;
    let look = PEER_CHECK.min(beat);
    let mut said = Instant::now();
    loop {
        let seen = stream.wait(Interest::HANGUP, None, Some(look)).and_then(|ready| {
            if ready == Readiness::default() {
                replier.bulk().check_lanes();
                replier.peers().check();
                stream.check_peer()?;
                if said.elapsed() >= beat {
                    replier.beat();
                    said = Instant::now();
                }
            }
            Ok(ready.hangup)
        });
        match seen {
            Ok(false) => {}
            Ok(true) => return stream.error().map_or(End::Closed, |error| End::of(&error)),
            Err(error) => return End::of(&error),
        }
    }
}

impl Further {
    /// Executes the messages of the supervisor, and of the next one, until there is none.
    fn watch(self: &Arc<Further>, mut control: Arc<OwnedFd>) {
        loop {
            let (message, connection) = match messages::receive::<ToWorker>(control.as_fd()) {
                Ok(Some(message)) => message,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(%error, "a supervisor says what makes no sense");
                    continue;
                }
                Ok(None) | Err(_) => match self.home.next_supervisor(&self.registry) {
                    Some(next) => {
                        control = next;
                        continue;
                    }
                    None => return,
                },
            };
            self.hear(message, connection, &control);
        }
    }

    fn hear(
        self: &Arc<Further>,
        message: ToWorker,
        connection: Option<OwnedFd>,
        control: &Arc<OwnedFd>,
    ) {
        let movable = matches!(message, ToWorker::MovablePeer { .. });
        match (message, connection) {
            (ToWorker::Lane { secure }, Some(connection)) => {
                if let Err(error) = self.add_lane(connection, secure) {
                    tracing::warn!(%error, "a lane cannot be used");
                }
            }
            (ToWorker::ResumableLane { secure, point }, Some(connection)) => {
                if let Err(error) = self.add_resumable_lane(connection, secure, point) {
                    tracing::warn!(%error, "a lane cannot be used");
                }
            }
            (
                ToWorker::Peer { secure, link } | ToWorker::MovablePeer { secure, link },
                Some(connection),
            ) => {
                if let Err(error) = self.add_peer(connection, secure, link, movable) {
                    tracing::warn!(%error, link, "another server's worker cannot be linked to");
                }
            }
            (ToWorker::GoOn { secure, point }, Some(connection)) => {
                if let Err(error) = self.resume(connection, secure, point) {
                    tracing::warn!(%error, "the session cannot go on over a new connection");
                }
            }
            (ToWorker::Memory, Some(connection)) => {
                if let Err(error) = self.switch.arrived(connection, &self.welcome.encode()) {
                    tracing::warn!(%error, "no memory is shared with the client");
                }
            }
            (ToWorker::Answer { request, payload }, descriptor) => {
                self.registry.answered(request, payload.map(|payload| (payload, descriptor)));
            }
            (ToWorker::Suspend, _) => self.registry.suspend(),
            (ToWorker::Resume, _) => {
                if let Some(gate) = self.registry.gate() {
                    gate.open();
                }
            }
            (ToWorker::Wanted, _) => {
                // A disconnected client keeps its session until it returns or its time is up.
                let _ = self.replier.notice(outboard_wire::notice::WANTED, |_| ());
            }
            (ToWorker::Unseal, _) => self.home.unseal(),
            // One of the next release, after one that proved nothing.
            (ToWorker::Inherit { secret }, _) => self.home.seal_again(secret),
            (ToWorker::Trace { on, root }, _) => crate::spans::set(on, root, control),
            (ToWorker::End { sentence }, _) => {
                // A client that closes the connection then is not waited for.
                self.replier.connection().leave();
                self.ending.end(sentence);
            }
            (ToWorker::Unknown(number), _) => {
                tracing::debug!(
                    number,
                    "a supervisor of another release says what this worker does not know"
                );
            }
            (
                ToWorker::Lane { .. }
                | ToWorker::ResumableLane { .. }
                | ToWorker::Memory
                | ToWorker::Peer { .. }
                | ToWorker::MovablePeer { .. }
                | ToWorker::GoOn { .. },
                None,
            ) => {
                tracing::error!("a descriptor was to come and did not");
            }
            (
                ToWorker::Warm(_)
                | ToWorker::Watch(_)
                | ToWorker::Look
                | ToWorker::Start(_)
                | ToWorker::Board
                | ToWorker::Account { .. }
                | ToWorker::Region { .. }
                | ToWorker::Page { .. }
                | ToWorker::Home { .. }
                | ToWorker::Heir { .. }
                | ToWorker::Keep { .. }
                | ToWorker::Meter,
                _,
            ) => {
                tracing::error!("the supervisor starts a second session in one worker");
            }
        }
    }

    /// The answer to a client whose session resumes at this point.
    fn answer(&self, point: Point) -> Vec<u8> {
        let mut welcome = self.welcome.clone();
        welcome.more.set(RESUME, &point);
        welcome.encode()
    }

    /// Hands a connection of the client's to `then`, once it is open.
    fn open(
        self: &Arc<Further>,
        connection: OwnedFd,
        encrypted: bool,
        then: impl FnOnce(&Further, Arc<dyn Stream>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let further = Arc::clone(self);
        let then = move |stream, _: Option<&_>| then(&further, stream);
        self.opening.open(connection, encrypted, Whose::Client, then)
    }

    /// A worker of another server is at the other end.
    fn add_peer(
        self: &Arc<Further>,
        connection: OwnedFd,
        encrypted: bool,
        link: u32,
        movable: bool,
    ) -> io::Result<()> {
        let Welcome { session, key, .. } = self.welcome;
        if unix::is_unix(connection.as_fd()) {
            let (stream, socket) = stream_switch::stream(connection)?;
            let socket = socket.ok_or(io::ErrorKind::NotConnected)?;
            let peers = self.replier.peers();
            return peers.accept_neighbour(&self.replier, link, (stream, socket), session);
        }
        let ticket = tls::ticket(key, session, link);
        let replier = self.replier.clone();
        let whose = Whose::Peer { key: ticket.key, movable };
        self.opening.open(connection, encrypted, whose, move |stream, secure| {
            replier.peers().accept(&replier, link, (stream, secure), movable, session)
        })
    }

    fn add_lane(self: &Arc<Further>, connection: OwnedFd, encrypted: bool) -> io::Result<()> {
        self.open(connection, encrypted, |further, stream| {
            // It fits into the empty socket buffer, so this does not wait for the client.
            write_all(&*stream, &further.welcome.encode())?;
            further.bulk.add_lane(stream)
        })
    }

    fn add_resumable_lane(
        self: &Arc<Further>,
        connection: OwnedFd,
        encrypted: bool,
        point: Point,
    ) -> io::Result<()> {
        self.open(connection, encrypted, move |further, stream| {
            further
                .bulk
                .resume_lane(stream, point, |received| further.answer(Point { received, ..point }))
        })
    }

    /// The client's commands go on over that connection.
    fn resume(
        self: &Arc<Further>,
        connection: OwnedFd,
        encrypted: bool,
        point: Point,
    ) -> io::Result<()> {
        self.open(connection, encrypted, move |further, stream| further.go_on(stream, point))
    }

    fn go_on(&self, stream: Arc<dyn Stream>, point: Point) -> io::Result<()> {
        let connection = self.replier.connection();
        // One after the other: each replaces the one before.
        let _replacing = connection.replacing();
        let Some(taken) = connection.replace(point.attempt) else {
            // It is closed, which says enough.
            return Ok(());
        };
        tracing::info!(commands = taken, "the session goes on over a new connection");
        if let Err(error) = self.replier.resume(
            stream,
            point.received,
            self.answer(Point { received: taken, ..point }),
        ) {
            tracing::warn!(%error, "the session ends: its client cannot have received what it says");
            exit(BROKEN)
        }
        // The main thread may be in a driver call that ends only when the client has heard of
        // something.
        let replier = self.replier.clone();
        spawn("resume", move || drop(replier.flush()))
    }
}
