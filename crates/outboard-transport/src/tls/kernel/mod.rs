//! Records of TLS that the kernel makes (`CONFIG_TLS`), of connections over TCP.
//!
//! The handshake is the same, and so are the bytes on the wire. Kernels before Linux 6.14 take one
//! key for each direction: a connection of which a side has to have another key ends, and whoever
//! can resume has another connection.

mod socket;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustls::ConnectionTrafficSecrets;

use super::shake::Shaken;
use crate::stream::Stream;
use crate::tcp::Tcp;
use crate::transport::Transport;
use socket::Direction;
use stream::KernelStream;

/// The environment variable that says whether the kernel makes the records: `on` or `off`.
pub const KERNEL_VARIABLE: &str = "OUTBOARD_TLS_KERNEL";

/// Who makes the records of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub enum Records {
    /// This process.
    #[default]
    Here,
    /// The kernel, if it can, and the connection is one of TCP.
    Kernel(Kernel),
}

/// How the kernel makes records.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Told of each connection of TCP whose records are made here all the same, and why.
    pub otherwise: fn(&Without),
    /// A connection ends after so many sent records, or earlier if its algorithm allows less.
    pub most_records: u64,
}

/// Why the kernel does not make the records of a connection.
#[derive(Debug, thiserror::Error)]
pub enum Without {
    /// It has no TLS.
    #[error("this kernel has no TLS, or its module is not loaded (`modprobe tls`, as root)")]
    Tls,
    /// It does not know what both sides have agreed on.
    #[error("the TLS of this kernel does not know {0} of TLS 1.3")]
    Algorithm(&'static str),
    /// The peer's next record has been received here already.
    #[error("the other side's first record came with the handshake")]
    Early,
    /// It fails.
    #[error("the TLS of this kernel does not work: {0}")]
    System(io::Error),
}

impl Records {
    /// As the environment says.
    pub fn from_env(otherwise: fn(&Without)) -> Records {
        match std::env::var(KERNEL_VARIABLE) {
            Ok(said) if said.trim() == "on" => {
                Records::Kernel(Kernel { otherwise, most_records: u64::MAX })
            }
            _ => Records::Here,
        }
    }
}

/// The socket of a stream, if its records can be the kernel's.
pub(super) fn socket_of(below: &dyn Stream) -> Option<BorrowedFd<'_>> {
    below.descriptor().filter(|_| below.transport() == Tcp.name())
}

/// Has the kernel make the records of a connection from here on, or gives it back.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] if the peer has closed it, or why the kernel makes those of one
/// direction only.
pub(super) fn take_over(
    shaken: Shaken,
    kernel: Kernel,
) -> io::Result<Result<Arc<KernelStream>, Shaken>> {
    let Some(fd) = socket_of(&*shaken.below) else { return Ok(Err(shaken)) };
    let agreed = &shaken.agreed;
    let (number, secrets) = (agreed.receive_with.0, &agreed.receive_with.1);
    let early = || if agreed.is_at_the_end() { Ok(()) } else { Err(Without::Early) };
    let prepared = early()
        .and_then(|()| socket::prepare(fd))
        .and_then(|()| socket::set_key(fd, Direction::Received, number, secrets));
    match prepared {
        Ok(()) => {}
        // The peer has closed it meanwhile.
        Err(Without::System(error)) if error.kind() == io::ErrorKind::NotConnected => {
            return Err(error);
        }
        Err(why) => {
            (kernel.otherwise)(&why);
            return Ok(Err(shaken));
        }
    }
    // Records of the first bytes have been made here.
    let (number, secrets) = (shaken.outgoing.key_is_used(), &agreed.send_with.1);
    socket::set_key(fd, Direction::Sent, number, secrets).map_err(io::Error::other)?;
    let limit = agreed.secrets.records_of_a_key().min(kernel.most_records);
    Ok(Ok(Arc::new(KernelStream::new(shaken.below, limit))))
}

/// Whether this kernel can make records at all: looks at a connection of this process to itself.
///
/// # Errors
/// Why it cannot.
pub fn check() -> Result<(), Without> {
    let listener = Tcp.listen("127.0.0.1:0").map_err(Without::System)?;
    let address = listener.address().map_err(Without::System)?;
    let stream = std::net::TcpStream::connect(address).map_err(Without::System)?;
    let fd: OwnedFd = stream.into();
    socket::prepare(fd.as_fd())?;
    let secrets = ConnectionTrafficSecrets::Aes256Gcm { key: [0; 32].into(), iv: [0; 12].into() };
    socket::set_key(fd.as_fd(), Direction::Sent, 0, &secrets)
}
