//! A session whose supervisor has ended: its worker waits for the next one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_transport::{tls, unix};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use subtle::ConstantTimeEq;

use super::registry::Registry;
use outboard_control::messages::{self, ToSupervisor, ToWorker};

/// How long the next supervisor may take to receive the worker's messages.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long whoever connects may take to prove that it is the next supervisor, ...
const PROVES_WITHIN: Duration = Duration::from_secs(5);
/// ... and how many may be about to: of more, the first one is turned away.
const MOST_CALLERS: usize = 8;

/// The socket for the next supervisor, and the descriptors kept for it.
pub(super) struct Home {
    session: u64,
    listener: Option<OwnedFd>,
    outlive: Option<Duration>,
    kept: Vec<(u8, OwnedFd)>,
    /// What the secret of the session's supervisors must hash to.
    seal: Option<[u8; 32]>,
    /// The next supervisor has no proof.
    unsealed: AtomicBool,
    /// The supervisor's user, as this process sees it.
    user: Option<u32>,
}

/// Somebody who has connected and not proved anything yet.
struct Caller {
    control: OwnedFd,
    until: Instant,
}

impl Home {
    /// For a session's worker, of the supervisor at the other end of this socket. Unless it
    /// settles, it ends with it.
    pub(super) fn new(control: BorrowedFd<'_>, session: u64) -> Home {
        let (listener, outlive, kept, seal) = (None, None, Vec::new(), None);
        let (unsealed, user) = (AtomicBool::new(false), unix::user(control));
        Home { session, listener, outlive, kept, seal, unsealed, user }
    }

    /// Has it believe nobody but those whose secret hashes to this.
    pub(super) fn seal(&mut self, seal: [u8; 32]) {
        self.seal = Some(seal);
    }

    /// Has it believe the first process of the server's user that comes.
    pub(super) fn unseal(&self) {
        self.unsealed.store(true, Ordering::Relaxed);
    }

    /// Undoes that for a supervisor that has the secret.
    pub(super) fn seal_again(&self, secret: u128) {
        if self.is_secret(secret) {
            self.unsealed.store(false, Ordering::Relaxed);
        }
    }

    fn is_secret(&self, secret: u128) -> bool {
        let sealed = tls::seal(secret, self.session);
        self.seal.is_some_and(|seal| sealed.ct_eq(&seal).into())
    }

    pub(super) fn settle(&mut self, listener: OwnedFd, outlive: Option<u64>) {
        (self.listener, self.outlive) = (Some(listener), outlive.map(Duration::from_secs));
    }

    /// Keeps something for the next supervisor.
    pub(super) fn keep(&mut self, tag: u8, descriptor: OwnedFd) {
        self.kept.retain(|(other, _)| *other != tag);
        self.kept.push((tag, descriptor));
    }

    /// Waits for the next supervisor and sends it everything that was kept; `None` if there is
    /// none. Nothing is said to anybody, and nothing taken from them, before the proof.
    pub(super) fn next_supervisor(&self, registry: &Registry) -> Option<Arc<OwnedFd>> {
        // Without a seal the next supervisor could not be told from anybody else.
        let listener = self.listener.as_ref().filter(|_| self.seal.is_some())?;
        tracing::warn!("the server has gone; its session goes on and waits for the next one");
        let deadline = self.outlive.map(|time| Instant::now() + time);
        let mut callers = Vec::new();
        loop {
            let control = match self.proven(listener, deadline, &mut callers) {
                Ok(Some(control)) => Arc::new(control),
                Ok(None) => {
                    tracing::warn!("no server came back in time; the session ends");
                    return None;
                }
                Err(error) => {
                    tracing::error!(%error, "the next server cannot be waited for; the session ends");
                    return None;
                }
            };
            match self.tell(&control).and_then(|()| registry.continue_with(&control)) {
                Ok(()) => {
                    tracing::info!("the next server goes on with the session");
                    return Some(control);
                }
                Err(error) => tracing::debug!(%error, "the next server has gone, too"),
            }
        }
    }

    fn tell(&self, control: &OwnedFd) -> io::Result<()> {
        messages::send_patiently(control.as_fd(), &ToSupervisor::Orphan, None, PATIENCE)?;
        self.kept.iter().try_for_each(|(tag, descriptor)| {
            messages::send_patiently(
                control.as_fd(),
                &ToSupervisor::Kept { tag: *tag },
                Some(descriptor.as_fd()),
                PATIENCE,
            )
        })
    }

    /// The next caller that proves to be the supervisor; none if the time is up.
    fn proven(
        &self,
        listener: &OwnedFd,
        deadline: Option<Instant>,
        callers: &mut Vec<Caller>,
    ) -> io::Result<Option<OwnedFd>> {
        loop {
            let until = callers.iter().map(|caller| caller.until).chain(deadline).min();
            let limit = until.map(|until| {
                let left = until.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: left.as_secs().cast_signed(),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            let all = callers.iter().map(|caller| &caller.control).chain([listener]);
            let mut ready: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            match poll(&mut ready, limit.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut ready: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
            let knocks = ready.pop().unwrap_or(false);
            if let Some(at) = ready.iter().position(|ready| *ready) {
                let Caller { control, .. } = callers.remove(at);
                if self.proves(&control) {
                    return Ok(Some(control));
                }
                tracing::debug!("somebody who was no server connected, and was turned away");
                continue;
            }
            if knocks && let Some(control) = self.accept(listener)? {
                if self.unsealed.load(Ordering::Relaxed) {
                    return Ok(Some(control));
                }
                if callers.len() >= MOST_CALLERS {
                    callers.remove(0);
                }
                callers.push(Caller { control, until: Instant::now() + PROVES_WITHIN });
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(None);
            }
            callers.retain(|caller| caller.until > now);
        }
    }

    /// Whether the first message of a caller is the proof.
    fn proves(&self, control: &OwnedFd) -> bool {
        match messages::receive::<ToWorker>(control.as_fd()) {
            Ok(Some((ToWorker::Inherit { secret }, _))) => self.is_secret(secret),
            _ => false,
        }
    }

    /// Who connects, if it is of the server's own user or root, which proves nothing yet.
    fn accept(&self, listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
        let control = match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(control) => control,
            // The process that connected has gone again.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Only the server's user can enter the folder anyway.
        let user = unix::user(&control);
        if user.is_some() && (user == self.user || user == Some(0)) {
            return Ok(Some(control));
        }
        tracing::debug!(
            ?user,
            "a user who is not the server's connected as the next server, and was turned away"
        );
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use outboard_transport::random;
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket_with,
    };

    use super::*;

    const SESSION: u64 = 7;
    const SECRET: u128 = 1 << 77;

    fn socket() -> OwnedFd {
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// A worker's home, and an address of it that nobody else has.
    fn home(outlive: u64) -> (Home, SocketAddrUnix) {
        let name = random::<16>().unwrap();
        let address = SocketAddrUnix::new_abstract_name(&name).unwrap();
        let (listener, (control, _)) = (socket(), messages::pair().unwrap());
        bind(&listener, &address).unwrap();
        listen(&listener, 4).unwrap();
        let mut home = Home::new(control.as_fd(), SESSION);
        home.settle(listener, Some(outlive));
        home.seal(tls::seal(SECRET, SESSION));
        home.keep(3, control);
        (home, address)
    }

    fn call(address: &SocketAddrUnix, says: Option<&ToWorker>) -> OwnedFd {
        let caller = socket();
        connect(&caller, address).unwrap();
        if let Some(says) = says {
            messages::send(caller.as_fd(), says, None).unwrap();
        }
        caller
    }

    /// What the worker says to a caller, which it has closed.
    fn heard(caller: &OwnedFd) -> Vec<ToSupervisor> {
        let said = std::iter::from_fn(|| messages::receive(caller.as_fd()).ok().flatten());
        said.map(|(message, _)| message).collect()
    }

    fn registry() -> Registry {
        let (control, _) = messages::pair().unwrap();
        Registry::new(Arc::new(control), false)
    }

    #[test]
    fn who_has_not_the_secret_is_no_supervisor_and_hears_nothing() {
        let (home, address) = home(600);
        let registry = registry();
        // They stand first in line: one says nothing, one asks for what it wants at once, one
        // guesses, and one has the secret of another session.
        let silent = call(&address, None);
        let point = outboard_wire::handshake::resume::Point { lane: 0, attempt: 9, received: 0 };
        let greedy = call(&address, Some(&ToWorker::GoOn { secure: false, point }));
        let guesses = call(&address, Some(&ToWorker::Inherit { secret: SECRET + 1 }));
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| home.next_supervisor(&registry));
            assert_eq!([heard(&greedy), heard(&guesses)], [const { Vec::new() }; 2]);
            let next = call(&address, Some(&ToWorker::Inherit { secret: SECRET }));
            assert!(worker.join().unwrap().is_some());
            let told: Vec<_> = (0..3)
                .map(|_| messages::receive::<ToSupervisor>(next.as_fd()).unwrap().unwrap().0)
                .collect();
            let expected =
                [ToSupervisor::Orphan, ToSupervisor::Kept { tag: 3 }, ToSupervisor::Told];
            assert_eq!(told, expected);
        });
        assert_eq!(heard(&silent), []);
    }

    #[test]
    fn a_release_that_proves_nothing_is_believed_if_its_predecessor_says_so() {
        let (home, address) = home(600);
        let registry = registry();
        home.unseal();
        let _first = call(&address, None);
        assert!(home.next_supervisor(&registry).is_some());
        // The next one of this release.
        home.seal_again(SECRET + 1);
        assert!(home.unsealed.load(Ordering::Relaxed));
        home.seal_again(SECRET);
        let silent = call(&address, None);
        let _next = call(&address, Some(&ToWorker::Inherit { secret: SECRET }));
        assert!(home.next_supervisor(&registry).is_some());
        assert_eq!(heard(&silent), []);
    }

    #[test]
    fn however_many_call_the_supervisor_is_heard() {
        let (home, address) = home(600);
        let registry = registry();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| home.next_supervisor(&registry));
            let others: Vec<_> = (0..3 * MOST_CALLERS).map(|_| call(&address, None)).collect();
            let _next = call(&address, Some(&ToWorker::Inherit { secret: SECRET }));
            assert!(worker.join().unwrap().is_some());
            drop(others);
        });
    }

    #[test]
    fn without_a_seal_nobody_is_waited_for_and_without_proof_nobody_comes() {
        let (mut home, address) = home(1);
        let registry = registry();
        let _silent = call(&address, None);
        let begun = Instant::now();
        assert!(home.next_supervisor(&registry).is_none());
        assert!(begun.elapsed() < PROVES_WITHIN);
        home.seal = None;
        let begun = Instant::now();
        assert!(home.next_supervisor(&registry).is_none());
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}
