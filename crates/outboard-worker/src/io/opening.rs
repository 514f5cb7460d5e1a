//! What becomes of a further connection before it carries anything: it is encrypted, and the client
//! may move it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use outboard_transport::Stream;

use super::bulk::Direct;
use super::moving::Moving;
use super::places::Places;
use super::secure::Secure;
use super::stream_switch;

/// How further connections of the session are opened.
#[derive(Clone)]
pub(super) struct Opening {
    secure: Option<Secure>,
    moving: Option<Moving>,
    borrowing: Arc<Direct>,
    under_way: Places,
}

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The session's client's.
    Client,
    /// Another server's worker's, which has a key of its own to show, and may move the connection
    /// once it is welcomed.
    Peer { key: u128, movable: bool },
}

impl Opening {
    /// Memory that the client lends to adapters is for `borrowing`.
    pub(super) fn new(
        secure: Option<Secure>,
        moving: Option<Moving>,
        borrowing: Arc<Direct>,
    ) -> Opening {
        Opening { secure, moving, borrowing, under_way: Places::default() }
    }

    /// Whether connections may be in the clear. Those of a session that has begun encrypted never
    /// are, whatever a supervisor says.
    fn allows_clear(&self) -> io::Result<()> {
        match self.secure {
            None => Ok(()),
            Some(_) => Err(io::Error::other("the session's connections are encrypted")),
        }
    }

    /// Opens a connection and hands it to `then`, with what encrypts it: in a thread of its own if
    /// something is expected of the other side, so that no connection waits for another.
    pub(super) fn open(
        &self,
        connection: OwnedFd,
        encrypted: bool,
        whose: Whose,
        then: impl FnOnce(Arc<dyn Stream>, Option<&Secure>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (stream, _) = stream_switch::stream(connection)?;
        let secure = self.secure.as_ref().filter(|_| encrypted);
        if encrypted && secure.is_none() {
            return Err(io::Error::other("the session's connections are not encrypted"));
        }
        if !encrypted {
            self.allows_clear()?;
        }
        let secure = secure.map(|secure| match whose {
            Whose::Client => secure.clone(),
            Whose::Peer { key, .. } => secure.with_key(key),
        });
        let moving = self.moving.clone().filter(|_| whose == Whose::Client);
        let may_move = moving.is_some() || matches!(whose, Whose::Peer { movable: true, .. });
        if secure.is_none() && !may_move {
            return then(stream, None);
        }
        let place = self.under_way.take();
        let place =
            place.ok_or_else(|| io::Error::other("too many connections are being opened"))?;
        let borrowing = Arc::clone(&self.borrowing);
        let open = move || {
            let opened = settle(stream, secure.as_ref(), moving.as_ref(), &borrowing);
            if let Err(error) = opened.and_then(|stream| then(stream, secure.as_ref())) {
                tracing::warn!(%error, "a connection cannot be used");
            }
            drop(place);
        };
        std::thread::Builder::new().name("lane-open".to_owned()).spawn(open).map(drop)
    }
}

fn settle(
    stream: Arc<dyn Stream>,
    secure: Option<&Secure>,
    moving: Option<&Moving>,
    borrowing: &Direct,
) -> io::Result<Arc<dyn Stream>> {
    let stream = match secure {
        None => stream,
        Some(secure) => secure.accept(stream)?,
    };
    match moving {
        None => Ok(stream),
        Some(moving) => moving.settle(stream, secure, borrowing),
    }
}
