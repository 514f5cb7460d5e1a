//! The main thread: takes commands from the connection, and from the one that comes after it, and
//! hands them to the handler.

use std::io;
use std::time::{Duration, Instant};

use outboard_session::server::Incoming;
use outboard_transport::{Interest, PEER_CHECK, Patience, Readiness, Spin, SpinLimits, Stream};
use outboard_wire::frame::CommandHeader;

use super::connection::{Connection, Current, End, Next};
use super::handler::{Handler, NextPoll};
use super::replier::{self, Replier};
use outboard_control::meter;

/// The dispatcher never spins for longer than this for the next command: then the client does
/// something else.
const LONGEST_IDLE_SPIN: Duration = Duration::from_millis(1);
/// After so many looks at the device, it is the client's turn again, where that is a system call.
const LOOKS: u32 = 4;
/// Replies of this many bytes are written even if more calls are at hand.
const ENOUGH_REPLIES: usize = 64 << 10;
/// The worker acknowledges after this many commands or bytes, if no reply has done so.
const ACKNOWLEDGE_AFTER: u64 = 16 << 10;
const ACKNOWLEDGE_BYTES: usize = 256 << 10;
/// How often the dispatcher looks after its waits while there is no connection.
const LOOK: Duration = Duration::from_millis(20);

/// Hands commands to the handler until the client is gone.
pub(super) fn dispatch(
    connection: &Connection,
    replier: &Replier,
    handler: &mut impl Handler,
) -> io::Result<()> {
    replier::this_thread_dispatches();
    let limits = SpinLimits::from_env();
    let patience = Patience::new(limits.least, limits.most.min(LONGEST_IDLE_SPIN));
    let gate = replier.registry().gate();
    let mut incoming = Incoming::new();
    let mut current = connection.current();
    loop {
        let error = match converse(connection, &current, &mut incoming, replier, handler, &patience)
        {
            Ok(()) => io::ErrorKind::UnexpectedEof.into(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(error) => error,
        };
        // Commands that were taken are not sent again.
        handler.caught_up();
        connection.lose(current.epoch, End::of(&error));
        loop {
            match connection.next(current.epoch, LOOK) {
                Next::NotYet => {
                    if handler.poll() == NextPoll::Never
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

/// Whether an error of a connection only says that the client is gone. One that was killed with
/// replies unread resets the connection.
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
    // Whether the handler has been given anything since it was told that there is no more. A
    // session that resumes may still be suspended.
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
            handler.poll();
            let more_calls = || {
                incoming
                    .peek()
                    .is_some_and(|next| next.flags & outboard_wire::frame::flags::WANTS_REPLY != 0)
            };
            if replier.pending() && (replier.pending_bytes() >= ENOUGH_REPLIES || !more_calls()) {
                handler.answering();
                replier.flush()?;
            }
        }
        handler.caught_up();
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
        // Messages that the handler queued meanwhile must not wait for the next command.
        replier.flush()?;
        if let Some(pace) = pace {
            pace.catch_up();
        }
        let look = || {
            let again = handler.poll();
            if let Some(gate) = gate.filter(|_| again == NextPoll::Never) {
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

/// Reads what the client sent, waiting for something; how much it was. Meanwhile `look`, as often
/// as it wants to be called.
fn read(
    stream: &dyn Stream,
    incoming: &mut Incoming,
    patience: &Patience,
    mut look: impl FnMut() -> (NextPoll, io::Result<()>),
) -> io::Result<usize> {
    let window = patience.window();
    let mut spin = Spin::new(stream, window);
    // Since when it has slept instead of spinning, and when the peer was last checked meanwhile.
    let mut slow: Option<(Instant, Instant)> = None;
    let mut before = NextPoll::Never;
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
            if looks == 0 || again != NextPoll::Now || written.is_err() {
                break (again, written);
            }
        };
        written?;
        if again == NextPoll::Never && matches!(before, NextPoll::After(_)) {
            // A client with an answer continues.
            slow = None;
            spin.restart();
        }
        before = again;
        if again == NextPoll::Now {
            // A wait ends soon, or is soon polled less often; then the client has its say.
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
        let timeout =
            if let NextPoll::After(time) = again { time.min(PEER_CHECK) } else { PEER_CHECK };
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
