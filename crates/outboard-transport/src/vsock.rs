//! vsock: sockets between a virtual machine and its host, which need no network.
//!
//! The kernel delivers in order and keeps as much as a socket's buffer holds. It sends no probes:
//! an end that is stopped, as a paused virtual machine is, says nothing and loses nothing. An end
//! that is gone is told by its kernel or, once the machine is gone, by the host's.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, accept_with, bind, connect, getpeername,
    getsockname, listen, socket_with, sockopt,
};

use crate::address::VsockAddress;
use crate::descriptor::{Socket, over_a_socket, wait_for};
use crate::stream::{Capabilities, Interest, Stream};
use crate::transport::{Listener, Transport};

/// The vsock transport. Addresses are [`VsockAddress`]es.
#[derive(Debug, Clone, Copy, Default)]
pub struct Vsock;

#[derive(Debug)]
struct VsockServer {
    listener: OwnedFd,
}

#[derive(Debug)]
struct VsockConnection {
    socket: Socket,
    /// The system forgets it once the other end is gone.
    peer: String,
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// What a socket holds of unread bytes, in place of the kernel's 256 KiB.
const BUFFER: u64 = 2 << 20;

/// Options of vsock's sockets (`linux/vm_sockets.h`), at the level of its family.
const BUFFER_SIZE: libc::c_int = 0;
const BUFFER_MAX_SIZE: libc::c_int = 2;
const CONNECT_TIMEOUT: libc::c_int = 6;

/// What `/dev/vsock` is asked for: `IOCTL_VM_SOCKETS_GET_LOCAL_CID`, `_IO(7, 0xb9)`.
const GET_LOCAL_CID: libc::Ioctl = 0x7b9;

/// The device that says which machine this is.
pub const DEVICE: &str = "/dev/vsock";

/// This machine's number, as its host gives it: 2 on a host.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if the kernel has no vsock, or the system's error.
pub fn local_cid() -> io::Result<u32> {
    let device = File::open(DEVICE)?;
    let mut cid: u32 = 0;
    // SAFETY: the device is open, and the kernel writes four bytes, which `cid` has.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), GET_LOCAL_CID, &raw mut cid) };
    if result == 0 { Ok(cid) } else { Err(io::Error::last_os_error()) }
}

/// Whether a machine reaches itself: its kernel has vsock's loopback.
///
/// # Errors
/// Why it does not.
pub fn loopback() -> io::Result<()> {
    let any_port = VsockAddress { cid: libc::VMADDR_CID_LOCAL, port: libc::VMADDR_PORT_ANY };
    bind(&socket()?, &any_port).map_err(io::Error::from)
}

/// A socket that listens there. `accept` on it does not block.
///
/// # Errors
/// The system's error.
pub fn open(address: VsockAddress) -> io::Result<OwnedFd> {
    let socket = socket()?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The address of a socket's own end.
///
/// # Errors
/// The system's error, or [`io::ErrorKind::InvalidInput`] if it is no socket of vsock.
pub fn own_address(socket: impl AsFd) -> io::Result<VsockAddress> {
    read(&getsockname(socket)?)
}

/// The address of the other end. The kernel does not let a virtual machine choose its number.
///
/// # Errors
/// As [`own_address`].
pub fn peer_address(socket: impl AsFd) -> io::Result<VsockAddress> {
    read(&getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?)
}

/// Makes a stream of a connected socket of vsock, as one that another process has accepted.
///
/// # Errors
/// The system's error if the descriptor cannot be made non-blocking.
pub fn from_descriptor(fd: OwnedFd) -> io::Result<Arc<dyn Stream>> {
    let peer = peer_address(&fd).map_or_else(|_| "unknown".to_owned(), |peer| peer.to_string());
    Ok(Arc::new(VsockConnection { socket: Socket::new(fd)?, peer }))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
    // What a listening socket has is inherited by those it accepts. The maximum comes first.
    set(&socket, BUFFER_MAX_SIZE, &BUFFER)?;
    set(&socket, BUFFER_SIZE, &BUFFER)?;
    Ok(socket)
}

fn set<T: Copy>(socket: impl AsFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open while borrowed, and the kernel reads as many bytes as `value`
    // has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::AF_VSOCK,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// SAFETY: the pointer is that of a whole `sockaddr_vm`, which lives during the call.
unsafe impl SocketAddrArg for VsockAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let address = libc::sockaddr_vm {
            svm_family: libc::AF_VSOCK as libc::sa_family_t,
            svm_reserved1: 0,
            svm_port: self.port,
            svm_cid: self.cid,
            svm_zero: [0; 4],
        };
        f((&raw const address).cast(), size_of::<libc::sockaddr_vm>() as SocketAddrLen)
    }
}

fn read(address: &SocketAddrAny) -> io::Result<VsockAddress> {
    if address.address_family() != AddressFamily::VSOCK
        || (address.addr_len() as usize) < size_of::<libc::sockaddr_vm>()
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the system has written an address of this family and of this length at least.
    let address = unsafe { address.as_ptr().cast::<libc::sockaddr_vm>().read_unaligned() };
    Ok(VsockAddress { cid: address.svm_cid, port: address.svm_port })
}

fn parse(address: &str) -> io::Result<VsockAddress> {
    VsockAddress::parse(address)
        .unwrap_or_else(|| Err(crate::AddressError::Vsock(address.to_owned())))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Connects, or gives up at the deadline.
fn dial(address: VsockAddress, timeout: Duration) -> io::Result<OwnedFd> {
    let deadline = Instant::now().checked_add(timeout);
    if address.is_local() {
        // Without loopback, a virtual machine would ask its host, which drops this.
        loopback().map_err(|error| explained(error, address))?;
    }
    let socket = socket().map_err(|error| explained(error, address))?;
    let patience = libc::timeval {
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_usec: timeout.subsec_micros().into(),
    };
    set(&socket, CONNECT_TIMEOUT, &patience)?;
    match connect(&socket, &address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS | Errno::AGAIN | Errno::INTR) => {}
        Err(error) => return Err(explained(error.into(), address)),
    }
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let (ready, _) = wait_for(socket.as_fd(), None, Interest::WRITE, None, left)?;
    match sockopt::socket_error(&socket)? {
        Err(error) => Err(explained(error.into(), address)),
        Ok(()) if ready.write => Ok(socket),
        Ok(()) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// What the system says, in words for people and with the meaning that it has for TCP.
fn explained(error: io::Error, address: VsockAddress) -> io::Error {
    let (kind, why) = match error.raw_os_error() {
        // The other kernel's answer for a port at which nobody listens.
        Some(libc::ECONNRESET) => (io::ErrorKind::ConnectionRefused, "nothing listens there"),
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) if address.is_local() => (
            io::ErrorKind::NetworkUnreachable,
            "this kernel has no vsock loopback (the module vsock_loopback)",
        ),
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) if address.is_host() => (
            io::ErrorKind::NetworkUnreachable,
            "this machine has no vsock device: its host gives it one",
        ),
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) => (
            io::ErrorKind::NetworkUnreachable,
            "this machine reaches no virtual machines by vsock (the module vhost_vsock)",
        ),
        Some(libc::EAFNOSUPPORT) => {
            (io::ErrorKind::NetworkUnreachable, "this kernel has no vsock (the module vsock)")
        }
        _ => return error,
    };
    io::Error::new(kind, format!("{why}: {error}"))
}

impl Transport for Vsock {
    fn name(&self) -> &'static str {
        "vsock"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let address = parse(address)?;
        if !address.is_one_machine() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                crate::AddressError::VsockAny(address.to_string()),
            ));
        }
        from_descriptor(dial(address, timeout)?)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(VsockServer { listener: open(parse(address)?)? }))
    }
}

impl Listener for VsockServer {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => return from_descriptor(socket),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    wait_for(self.listener.as_fd(), None, Interest::READ, None, None)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn address(&self) -> io::Result<String> {
        Ok(own_address(&self.listener)?.to_string())
    }
}

impl Stream for VsockConnection {
    over_a_socket!();

    fn error(&self) -> Option<io::Error> {
        sockopt::socket_error(self.socket.fd()).ok()?.err().map(io::Error::from)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: true, striping: true, ..Capabilities::default() }
    }

    fn transport(&self) -> &'static str {
        "vsock"
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use outboard_test_support::skip;

    use super::*;

    /// Addresses of this machine, each used once.
    fn test_address() -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let port = 1 << 30 | std::process::id() << 8 | NEXT.fetch_add(1, Ordering::Relaxed);
        format!("vsock:local:{port}")
    }

    fn why_not() -> Option<String> {
        loopback().err().map(|error| format!("this kernel has no vsock loopback: {error}"))
    }

    crate::conformance!(Vsock, &test_address(), unless why_not());

    #[test]
    fn nothing_listening_is_refused_at_once() {
        if let Some(why) = why_not() {
            skip!("{why}");
        }
        let error = Vsock.connect(&test_address(), Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    }

    #[test]
    fn both_ends_know_each_other() {
        if let Some(why) = why_not() {
            skip!("{why}");
        }
        let server = Vsock.listen(&test_address()).unwrap();
        let client = Vsock.connect(&server.address().unwrap(), Duration::from_secs(20)).unwrap();
        let accepted = server.accept().unwrap();
        assert_eq!(client.peer(), server.address().unwrap());
        assert!(accepted.peer().starts_with("vsock:local:"), "{}", accepted.peer());
        let again = accepted.descriptor().unwrap().try_clone_to_owned().unwrap();
        assert_eq!(crate::from_descriptor(again).unwrap().transport(), "vsock");
    }

    #[test]
    fn a_machine_without_it_says_what_is_missing() {
        if why_not().is_none() {
            skip!("this kernel has vsock's loopback");
        }
        let error = Vsock.connect(&test_address(), Duration::from_secs(20)).unwrap_err();
        assert!(error.to_string().contains("the module vsock"), "{error}");
    }

    #[test]
    fn nobody_connects_to_any_machine() {
        let error = Vsock.connect("vsock:any", Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("is where a server listens"), "{error}");
    }
}
