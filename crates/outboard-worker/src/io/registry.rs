//! The session's requests to the supervisor, which keeps what sessions of the server share with
//! each other.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::gate::Gate;
use super::peers::Called;
use super::stays::Stays;
use outboard_control::messages::{self, FileAnswer, ToSupervisor};
use outboard_wire::codec::decode_all;
use outboard_wire::files::FileReference;
use outboard_wire::handshake::Local;
use parking_lot::{Mutex, MutexGuard};

/// How long the supervisor may take to answer: it does nothing that waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to open a file or to read from it: it gives up a file system that does not
/// answer before.
const FILES_PATIENCE: Duration = Duration::from_secs(20);

/// How long it may take to make room: other sessions may have to move theirs.
const ROOM_PATIENCE: Duration = Duration::from_secs(600);

/// The way to the supervisor's registry.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<RegistryState>,
    /// Where commands wait while the driver is suspended, if it can be.
    gate: Option<Gate>,
    /// What keeps the driver from being suspended.
    stays: Stays,
}

#[derive(Debug)]
struct RegistryState {
    /// The socket to the supervisor.
    control: Arc<OwnedFd>,
    last: u64,
    requests: HashMap<u64, Request>,
    /// What this session shares, by its tokens, for the next supervisor.
    shared: HashMap<u128, Shared>,
    /// Bytes of devices' memory that the supervisor has granted, where memory is lent.
    granted: BTreeMap<u32, u64>,
}

/// A request that has not been answered.
#[derive(Debug)]
struct Request {
    message: ToSupervisor,
    descriptor: Option<OwnedFd>,
    sender: Sender<Answer>,
}

#[derive(Debug)]
struct Shared {
    kind: u8,
    payload: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

/// What the supervisor answered: the payload, and perhaps a descriptor.
pub(crate) type Answer = Option<(Vec<u8>, Option<OwnedFd>)>;

impl Registry {
    pub(crate) fn new(control: Arc<OwnedFd>, lends: bool) -> Registry {
        let gate = lends.then(Gate::new);
        let (requests, shared, granted) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        Registry(Arc::new(Inner {
            state: Mutex::new(RegistryState { control, last: 0, requests, shared, granted }),
            gate,
            stays: Stays::default(),
        }))
    }

    /// Shares something under a token; an error if the session shares too much already.
    pub(crate) fn share(
        &self,
        token: u128,
        kind: u8,
        payload: Vec<u8>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let kept = descriptor.map(|descriptor| descriptor.try_clone_to_owned()).transpose()?;
        let shared = Shared { kind, payload: payload.clone(), descriptor: kept };
        let share = |request| ToSupervisor::Share { request, token, kind, payload };
        self.ask(share, descriptor, PATIENCE)?.ok_or(io::ErrorKind::QuotaExceeded)?;
        self.state().shared.insert(token, shared);
        Ok(())
    }

    /// Shares something no longer.
    pub(crate) fn unshare(&self, token: u128) -> io::Result<()> {
        let mut state = self.state();
        state.shared.remove(&token);
        match messages::send(state.control.as_fd(), &ToSupervisor::Unshare { token }, None) {
            // The next supervisor will not hear of it.
            Err(error) if messages::has_gone(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// The share with that token, if it is of that kind.
    pub(crate) fn find(&self, token: u128, kind: u8) -> io::Result<Answer> {
        self.ask(|request| ToSupervisor::Find { request, token, kind }, None, PATIENCE)
    }

    /// Has a file opened that client and server both have; `None` if the server shares none.
    pub(crate) fn open_file(
        &self,
        reference: FileReference,
        reads: bool,
        writes: bool,
    ) -> io::Result<Option<FileAnswer>> {
        let open = |request| ToSupervisor::OpenFile { request, reference, reads, writes };
        let Some((payload, _)) = self.ask(open, None, FILES_PATIENCE)? else { return Ok(None) };
        decode_all(&payload).map(Some).map_err(io::Error::other)
    }

    /// The descriptor of an opened file, if the client has shown that it can read it; else the
    /// reason why that is not so.
    pub(crate) fn prove_file(
        &self,
        opened: u64,
        proof: [u8; 32],
    ) -> io::Result<Result<OwnedFd, String>> {
        let prove = |request| ToSupervisor::ProveFile { request, opened, proof };
        Ok(match self.ask(prove, None, FILES_PATIENCE)? {
            Some((_, Some(descriptor))) => Ok(descriptor),
            Some((reason, None)) if reason.is_empty() => {
                Err("the session has too many descriptors".to_owned())
            }
            Some((reason, None)) => Err(outboard_wire::plain(&String::from_utf8_lossy(&reason))),
            None => Err("the server shares no files".to_owned()),
        })
    }

    /// Connects to another server, for a link of that number there, by a connection that may move
    /// to adapters or not. The inner error is a sentence that says why there is no connection.
    pub(super) fn dial(
        &self,
        link: u32,
        called: &Called,
        movable: bool,
    ) -> io::Result<Result<OwnedFd, String>> {
        let (address, session, ticket) =
            (called.address.clone(), called.session, called.ticket.key);
        let secure = called.fingerprint.is_some();
        self.ask_for_connection(|request| match movable {
            false => ToSupervisor::Dial { request, address, session, ticket, link, secure },
            true => ToSupervisor::DialMovable { request, address, session, ticket, link, secure },
        })
    }

    /// The same with a server of this machine, by its Unix socket.
    pub(super) fn dial_socket(
        &self,
        link: u32,
        called: &Called,
        server: &Local,
    ) -> io::Result<Result<OwnedFd, String>> {
        self.ask_for_connection(|request| ToSupervisor::DialSocket {
            request,
            server: server.clone(),
            session: called.session,
            ticket: called.ticket.key,
            link,
        })
    }

    fn ask_for_connection(
        &self,
        dial: impl FnOnce(u64) -> ToSupervisor,
    ) -> io::Result<Result<OwnedFd, String>> {
        Ok(match self.ask(dial, None, PATIENCE)? {
            Some((_, Some(connection))) => Ok(connection),
            Some((failure, None)) => Err(outboard_wire::plain(&String::from_utf8_lossy(&failure))),
            None => Err("the server makes no connections to others".to_owned()),
        })
    }

    /// Whether this session may hold so many bytes of a device in all; others may have to make
    /// room. `failed`: the driver has just refused it.
    pub(crate) fn room(&self, device: u32, bytes: u64, failed: bool) -> io::Result<bool> {
        let room = |request| ToSupervisor::Room { request, device, bytes, failed };
        let granted = self.ask(room, None, ROOM_PATIENCE)?.is_some();
        if granted {
            self.state().granted.insert(device, bytes);
        }
        Ok(granted)
    }

    /// Has other sessions give back what they only keep of a device's memory; whether any has
    /// memory there.
    pub(crate) fn scarce(&self, device: u32) -> io::Result<bool> {
        self.ask(|request| ToSupervisor::Scarce { request, device }, None, PATIENCE)
            .map(|answer| answer.is_some())
    }

    /// This session needs no more of a device than that.
    pub(crate) fn holds(&self, device: u32, bytes: u64) {
        self.state().granted.insert(device, bytes);
        self.send(&ToSupervisor::Holds { device, bytes });
    }

    /// Whether sessions lend each other their memory.
    pub(crate) fn lends(&self) -> bool {
        self.gate().is_some()
    }

    /// How much of a device the session may hold, by what was granted; `None` if memory is not
    /// lent.
    pub(crate) fn granted(&self, device: u32) -> Option<u64> {
        self.gate().map(|_| self.state().granted.get(&device).copied().unwrap_or(0))
    }

    /// The same of all devices of which anything was granted.
    pub(crate) fn all_granted(&self) -> Vec<(u32, u64)> {
        self.state().granted.iter().map(|(device, bytes)| (*device, *bytes)).collect()
    }

    /// Where commands wait while the driver is suspended, if it can be.
    pub(super) fn gate(&self) -> Option<&Gate> {
        self.0.gate.as_ref()
    }

    /// What keeps the driver from being suspended.
    pub(super) fn stays(&self) -> &Stays {
        &self.0.stays
    }

    /// Whether the session has communicators: other ranks wait for it, and NCCL's memory is mapped
    /// by them.
    pub(crate) fn has_communicators(&self, any: bool) {
        self.0.stays.has_communicators(any);
    }

    /// The supervisor wants the driver suspended: says whether it can be.
    pub(super) fn suspend(&self) {
        let why = self.stays().why();
        if let Some(why) = why {
            tracing::info!("the session is not suspended: {why}");
        }
        let quiet = why.is_none() && self.gate().is_some_and(Gate::close);
        self.send(&ToSupervisor::Quiet { quiet });
    }

    /// The driver is suspended, and there are commands.
    pub(super) fn wake(&self) {
        self.send(&ToSupervisor::Wake);
    }

    fn send(&self, message: &ToSupervisor) {
        // Without a supervisor it is dropped; the next one receives all that still matters.
        let _ = messages::send(self.state().control.as_fd(), message, None);
    }

    /// The supervisor's answer to a request has come.
    pub(crate) fn answered(&self, request: u64, answer: Answer) {
        if let Some(request) = self.state().requests.remove(&request) {
            // The thread that asked may have given up.
            let _ = request.sender.send(answer);
        }
    }

    /// Goes on with the next supervisor: tells it what is shared, and what has not been answered.
    pub(super) fn continue_with(&self, control: &Arc<OwnedFd>) -> io::Result<()> {
        // Only the thread that is here closes and opens it.
        let closed = self.gate().is_some_and(Gate::is_closed);
        let mut state = self.state();
        let send = |message: &ToSupervisor, descriptor: &Option<OwnedFd>| {
            messages::send_patiently(
                control.as_fd(),
                message,
                descriptor.as_ref().map(AsFd::as_fd),
                PATIENCE,
            )
        };
        for (token, Shared { kind, payload, descriptor }) in &state.shared {
            let share = ToSupervisor::Share {
                request: 0,
                token: *token,
                kind: *kind,
                payload: payload.clone(),
            };
            send(&share, descriptor)?;
        }
        for (device, bytes) in &state.granted {
            send(&ToSupervisor::Holds { device: *device, bytes: *bytes }, &None)?;
        }
        if closed {
            send(&ToSupervisor::Quiet { quiet: true }, &None)?;
        }
        send(&ToSupervisor::Told, &None)?;
        for request in state.requests.values() {
            send(&request.message, &request.descriptor)?;
        }
        state.control = Arc::clone(control);
        drop(state);
        // A command that has come meanwhile may have told the old supervisor. To be told twice does
        // no harm.
        if self.gate().is_some_and(Gate::is_awaited) {
            self.wake();
        }
        Ok(())
    }

    pub(super) fn ask(
        &self,
        message: impl FnOnce(u64) -> ToSupervisor,
        descriptor: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> io::Result<Answer> {
        let (sender, receiver) = channel();
        let kept = descriptor.map(|descriptor| descriptor.try_clone_to_owned()).transpose()?;
        let (request, sent) = {
            let mut state = self.state();
            state.last += 1;
            let request = state.last;
            let message = message(request);
            let sent = messages::send(state.control.as_fd(), &message, descriptor);
            state.requests.insert(request, Request { message, descriptor: kept, sender });
            (request, sent)
        };
        let answer = match sent {
            Err(error) if !messages::has_gone(&error) => Err(error),
            // The next supervisor is asked, if it comes in time.
            _ => receiver.recv_timeout(patience).map_err(|_| io::ErrorKind::TimedOut.into()),
        };
        self.state().requests.remove(&request);
        answer
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    type Said = Vec<(ToSupervisor, bool)>;

    /// The messages to a supervisor, until the end or until none is left.
    fn messages_to(supervisor: &OwnedFd) -> Said {
        rustix::io::ioctl_fionbio(supervisor, true).unwrap();
        let next = || messages::receive::<ToSupervisor>(supervisor.as_fd()).ok().flatten();
        std::iter::from_fn(next)
            .map(|(message, descriptor)| (message, descriptor.is_some()))
            .collect()
    }

    /// Answers the next request.
    fn answer(registry: &Registry, supervisor: &OwnedFd) {
        match messages::receive(supervisor.as_fd()).unwrap().unwrap().0 {
            ToSupervisor::Share { request, .. } => {
                registry.answered(request, Some((Vec::new(), None)))
            }
            other => panic!("not a share: {other:?}"),
        }
    }

    #[test]
    fn the_next_supervisor_is_told_what_is_shared_and_asked_what_was_not_answered() {
        let (first, ours) = messages::pair().unwrap();
        let registry = Registry::new(Arc::new(ours), false);
        let null = File::open("/dev/null").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3 {
                    answer(&registry, &first);
                }
            });
            registry.share(1, 7, vec![1], None).unwrap();
            registry.share(2, 7, vec![2], Some(null.as_fd())).unwrap();
            registry.share(3, 7, vec![3], None).unwrap();
        });
        registry.unshare(3).unwrap();
        drop(first);
        // There is no supervisor to receive it, and none needs it.
        registry.unshare(1).unwrap();

        let (second, ours) = messages::pair().unwrap();
        let found = std::thread::scope(|scope| {
            let asked = scope.spawn(|| registry.find(9, 8));
            while registry.state().requests.is_empty() {
                std::thread::yield_now();
            }
            registry.continue_with(&Arc::new(ours)).unwrap();
            let said = messages_to(&second);
            assert_eq!(
                said[0],
                (ToSupervisor::Share { request: 0, token: 2, kind: 7, payload: vec![2] }, true)
            );
            assert_eq!(said[1], (ToSupervisor::Told, false));
            let (ToSupervisor::Find { request, token: 9, kind: 8 }, false) = said[2] else {
                panic!("{said:?}")
            };
            assert_eq!(said.len(), 3);
            registry.answered(request, Some((vec![5], None)));
            asked.join().unwrap()
        });
        assert_eq!(found.unwrap().unwrap().0, [5]);
        // Later messages go to the new one.
        registry.unshare(2).unwrap();
        assert_eq!(messages_to(&second), [(ToSupervisor::Unshare { token: 2 }, false)]);
    }

    #[test]
    fn a_session_with_communicators_or_registered_memory_is_not_suspended() {
        let (supervisor, ours) = messages::pair().unwrap();
        let registry = Registry::new(Arc::new(ours), true);
        registry.gate().unwrap().leave();
        registry.has_communicators(true);
        registry.suspend();
        registry.has_communicators(false);
        let stays = [registry.stays().stay(), registry.stays().stay()];
        for stay in stays {
            registry.suspend();
            drop(stay);
        }
        registry.suspend();
        let answers = messages_to(&supervisor).into_iter().map(|(message, _)| message);
        let quiet = [false, false, false, true];
        assert!(answers.eq(quiet.map(|quiet| ToSupervisor::Quiet { quiet })));
        assert!(registry.gate().unwrap().is_closed());
    }

    #[test]
    fn the_next_supervisor_is_told_what_a_suspended_session_holds_and_whether_it_is_wanted() {
        let (first, ours) = messages::pair().unwrap();
        let registry = Registry::new(Arc::new(ours), true);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| registry.room(1, 64, false));
            let (ToSupervisor::Room { request, device: 1, bytes: 64, failed: false }, _) =
                messages::receive(first.as_fd()).unwrap().unwrap()
            else {
                panic!("not a request for room")
            };
            registry.answered(request, Some((Vec::new(), None)));
            assert!(asked.join().unwrap().unwrap());
        });
        registry.holds(1, 32);
        registry.gate().unwrap().leave();
        registry.suspend();
        drop(first);

        let (second, ours) = messages::pair().unwrap();
        let (holds, quiet) =
            (ToSupervisor::Holds { device: 1, bytes: 32 }, ToSupervisor::Quiet { quiet: true });
        registry.continue_with(&Arc::new(ours)).unwrap();
        assert_eq!(
            messages_to(&second),
            [(holds.clone(), false), (quiet.clone(), false), (ToSupervisor::Told, false)]
        );
        drop(second);

        // A command comes while there is no supervisor.
        let (third, ours) = messages::pair().unwrap();
        let gate = registry.gate().unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| gate.enter(|| registry.wake()));
            while !gate.is_awaited() {
                std::thread::yield_now();
            }
            registry.continue_with(&Arc::new(ours)).unwrap();
            let said: Vec<_> =
                messages_to(&third).into_iter().map(|(message, _)| message).collect();
            assert_eq!(said, [holds, quiet, ToSupervisor::Told, ToSupervisor::Wake]);
            gate.open();
            inside.join().unwrap();
        });
        assert_eq!(registry.granted(1).unwrap(), 32);
    }
}
