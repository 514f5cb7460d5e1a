//! A session whose supervisor has ended: its worker waits for the next one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::unix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};

use super::registry::Registry;
use outboard_control::messages::{self, ToSupervisor};

/// How long the next supervisor may take to receive the worker's messages.
const PATIENCE: Duration = Duration::from_secs(10);

/// The socket for the next supervisor, and the descriptors kept for it.
pub(super) struct Home {
    listener: Option<OwnedFd>,
    outlive: Option<Duration>,
    kept: Vec<(u8, OwnedFd)>,
    /// The supervisor's user, as this process sees it.
    user: Option<u32>,
}

impl Home {
    /// For a worker of the supervisor at the other end of this socket. Unless it settles, it ends
    /// with it.
    pub(super) fn new(control: BorrowedFd<'_>) -> Home {
        Home { listener: None, outlive: None, kept: Vec::new(), user: unix::user(control) }
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
    /// none.
    pub(super) fn next_supervisor(&self, registry: &Registry) -> Option<Arc<OwnedFd>> {
        let listener = self.listener.as_ref()?;
        tracing::warn!("the server has gone; its session goes on and waits for the next one");
        let deadline = self.outlive.map(|time| Instant::now() + time);
        loop {
            let control = match self.accept(listener, deadline) {
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
                Err(error) => {
                    tracing::debug!(%error, "somebody who was no server connected, or it has gone too")
                }
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

    /// The next connection of the server's own user or root; none if the time is up.
    fn accept(&self, listener: &OwnedFd, deadline: Option<Instant>) -> io::Result<Option<OwnedFd>> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = left.map(|left| Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut [PollFd::new(listener, PollFlags::IN)], limit.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let control = match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(control) => control,
                // The process that connected has gone again.
                Err(
                    rustix::io::Errno::CONNABORTED
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::AGAIN,
                ) => continue,
                Err(error) => return Err(error.into()),
            };
            // Only the server's user can enter the folder anyway.
            let user = unix::user(&control);
            if user.is_some() && (user == self.user || user == Some(0)) {
                return Ok(Some(control));
            }
            tracing::warn!(
                ?user,
                "a user who is not the server's connected as the next server, and was turned away"
            );
        }
    }
}
