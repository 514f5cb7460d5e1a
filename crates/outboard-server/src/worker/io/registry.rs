//! What this session shares with others of the server, and what others share with it. The supervisor keeps both.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::control::{self, ToSupervisor};

/// How long the supervisor may take to answer: it does nothing that waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to the supervisor's registry.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    control: Arc<OwnedFd>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    requests: HashMap<u64, Sender<Answer>>,
}

/// What the supervisor answered: the payload, and perhaps a descriptor.
pub(super) type Answer = Option<(Vec<u8>, Option<OwnedFd>)>;

impl Registry {
    pub(super) fn new(control: Arc<OwnedFd>) -> Registry {
        Registry(Arc::new(Inner { control, waiting: Mutex::default() }))
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
        self.ask(share, descriptor)?.map(drop).ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// Shares something no longer.
    pub(crate) fn unshare(&self, token: u128) -> io::Result<()> {
        control::send(self.0.control.as_fd(), &ToSupervisor::Unshare { token }, None)
    }

    /// What has that token, if it is of that kind.
    pub(crate) fn find(&self, token: u128, kind: u8) -> io::Result<Answer> {
        self.ask(|request| ToSupervisor::Find { request, token, kind }, None)
    }

    /// The supervisor's answer to a request has come.
    pub(super) fn answered(&self, request: u64, answer: Answer) {
        if let Some(sender) = self.waiting().requests.remove(&request) {
            // Whoever asked may have given up.
            let _ = sender.send(answer);
        }
    }

    fn ask(&self, message: impl FnOnce(u64) -> ToSupervisor, descriptor: Option<BorrowedFd<'_>>) -> io::Result<Answer> {
        let (sender, receiver) = channel();
        let request = {
            let mut waiting = self.waiting();
            waiting.last += 1;
            let request = waiting.last;
            waiting.requests.insert(request, sender);
            request
        };
        let answer = control::send(self.0.control.as_fd(), &message(request), descriptor)
            .and_then(|()| receiver.recv_timeout(PATIENCE).map_err(|_| io::ErrorKind::TimedOut.into()));
        self.waiting().requests.remove(&request);
        answer
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
