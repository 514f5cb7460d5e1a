//! Sockets for collectives, which the supervisor makes and makes calls on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use outboard_control::messages::{Interface, ToSupervisor};
use outboard_wire::codec::decode_all;
use rustix::io::Errno;

use super::registry::{Answer, PATIENCE, Registry};

/// What went wrong if no answer came: the next supervisor may be there when NCCL tries again.
fn unheard(_error: io::Error) -> Errno {
    Errno::CONNREFUSED
}

/// The outcome that an answer says; without one, collectives are not for this session.
fn outcome(answer: Answer) -> Result<(), Errno> {
    let (payload, _) = answer.ok_or(Errno::ACCESS)?;
    match payload.try_into().map(i32::from_le_bytes) {
        Ok(0) => Ok(()),
        Ok(number) => Err(Errno::from_raw_os_error(number)),
        Err(_) => Err(Errno::PROTO),
    }
}

impl Registry {
    /// A TCP socket of this server's address.
    pub(crate) fn socket(&self, v6: bool) -> Result<OwnedFd, Errno> {
        let make = |request| ToSupervisor::Socket { request, v6 };
        match self.ask(make, None, PATIENCE).map_err(unheard)? {
            Some((_, Some(socket))) => Ok(socket),
            answer => outcome(answer).and(Err(Errno::PROTO)),
        }
    }

    /// Gives it a port.
    pub(crate) fn bind(&self, socket: BorrowedFd<'_>, to: SocketAddr) -> Result<(), Errno> {
        let bind = |request| ToSupervisor::Bind { request, address: to.to_string() };
        outcome(self.ask(bind, Some(socket), PATIENCE).map_err(unheard)?)
    }

    /// Has it listen.
    pub(crate) fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno> {
        let listen = |request| ToSupervisor::Listen { request, backlog };
        outcome(self.ask(listen, Some(socket), PATIENCE).map_err(unheard)?)
    }

    /// Connects it, without waiting for the connection.
    pub(crate) fn connect(&self, socket: BorrowedFd<'_>, to: SocketAddr) -> Result<(), Errno> {
        let connect = |request| ToSupervisor::Connect { request, address: to.to_string() };
        outcome(self.ask(connect, Some(socket), PATIENCE).map_err(unheard)?)
    }

    /// The interface at which other servers reach this one.
    pub(crate) fn interface(&self) -> Result<Interface, Errno> {
        let answer = self.ask(|request| ToSupervisor::Interface { request }, None, PATIENCE);
        let (payload, _) = answer.map_err(unheard)?.ok_or(Errno::ACCESS)?;
        if payload.is_empty() {
            return Err(Errno::NETUNREACH);
        }
        decode_all(&payload).map_err(|_| Errno::PROTO)
    }
}
