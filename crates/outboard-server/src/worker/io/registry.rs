//! What this session shares with others of the server, and what others share with it. The supervisor keeps both.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::gate::Gate;
use crate::control::{self, ToSupervisor};

/// How long the supervisor may take to answer: it does nothing that waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to make room: other sessions may have to move theirs.
const ROOM_PATIENCE: Duration = Duration::from_secs(600);

/// The way to the supervisor's registry.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    control: Arc<OwnedFd>,
    waiting: Mutex<Waiting>,
    /// Where commands wait while the driver is suspended, if it can be.
    gate: Option<Gate>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    requests: HashMap<u64, Sender<Answer>>,
}

/// What the supervisor answered: the payload, and perhaps a descriptor.
pub(super) type Answer = Option<(Vec<u8>, Option<OwnedFd>)>;

impl Registry {
    pub(super) fn new(control: Arc<OwnedFd>, lends: bool) -> Registry {
        let gate = lends.then(Gate::new);
        Registry(Arc::new(Inner { control, waiting: Mutex::default(), gate }))
    }

    /// Shares something under a token; an error if the session shares too much already.
    pub(crate) fn share(
        &self,
        token: u128,
        kind: u8,
        payload: Vec<u8>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let share = |request| ToSupervisor::Share { request, token, kind, payload };
        self.ask(share, descriptor, PATIENCE)?.map(drop).ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// Shares something no longer.
    pub(crate) fn unshare(&self, token: u128) -> io::Result<()> {
        control::send(self.0.control.as_fd(), &ToSupervisor::Unshare { token }, None)
    }

    /// What has that token, if it is of that kind.
    pub(crate) fn find(&self, token: u128, kind: u8) -> io::Result<Answer> {
        self.ask(|request| ToSupervisor::Find { request, token, kind }, None, PATIENCE)
    }

    /// Whether this session may hold so many bytes of a device in all; others may have to make room. `failed`: the driver has just refused it.
    pub(crate) fn room(&self, device: u32, bytes: u64, failed: bool) -> io::Result<bool> {
        let room = |request| ToSupervisor::Room { request, device, bytes, failed };
        Ok(self.ask(room, None, ROOM_PATIENCE)?.is_some())
    }

    /// This session needs no more of a device than that.
    pub(crate) fn holds(&self, device: u32, bytes: u64) -> io::Result<()> {
        control::send(self.0.control.as_fd(), &ToSupervisor::Holds { device, bytes }, None)
    }

    /// Where commands wait while the driver is suspended, if it can be.
    pub(super) fn gate(&self) -> Option<&Gate> {
        self.0.gate.as_ref()
    }

    /// The supervisor wants the driver suspended: says whether it can be.
    pub(super) fn suspend(&self) {
        let quiet = self.gate().is_some_and(Gate::close);
        self.say(&ToSupervisor::Quiet { quiet });
    }

    /// The driver is suspended, and there are commands.
    pub(super) fn wake(&self) {
        self.say(&ToSupervisor::Wake);
    }

    fn say(&self, message: &ToSupervisor) {
        // Without a supervisor, this process ends.
        let _ = control::send(self.0.control.as_fd(), message, None);
    }

    /// The supervisor's answer to a request has come.
    pub(super) fn answered(&self, request: u64, answer: Answer) {
        if let Some(sender) = self.waiting().requests.remove(&request) {
            // Whoever asked may have given up.
            let _ = sender.send(answer);
        }
    }

    fn ask(
        &self,
        message: impl FnOnce(u64) -> ToSupervisor,
        descriptor: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> io::Result<Answer> {
        let (sender, receiver) = channel();
        let request = {
            let mut waiting = self.waiting();
            waiting.last += 1;
            let request = waiting.last;
            waiting.requests.insert(request, sender);
            request
        };
        let answer = control::send(self.0.control.as_fd(), &message(request), descriptor)
            .and_then(|()| receiver.recv_timeout(patience).map_err(|_| io::ErrorKind::TimedOut.into()));
        self.waiting().requests.remove(&request);
        answer
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
