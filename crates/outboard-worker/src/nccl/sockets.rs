//! What NCCL calls in place of the C library's functions for sockets.
//!
//! Sockets of the Internet are the supervisor's, which also makes the calls on them that need an
//! address; it shares the socket, so all else is the library's own. Other sockets are as they were,
//! such as those by which NCCL gives memory to another worker of the machine.

use std::ffi::{CString, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::null_mut;
use std::sync::OnceLock;

use outboard_control::messages::Interface;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::sockopt::socket_error;

use super::entries::Replacement;
use crate::io::Registry;

/// The way to the supervisor: C functions have no argument for it.
static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// From now on sockets come from this session's supervisor.
pub(super) fn come_from(registry: &Registry) {
    // A worker has one session.
    REGISTRY.get_or_init(|| registry.clone());
}

/// What is called in place of which function.
pub(super) fn functions() -> [Replacement; 6] {
    [
        (c"socket", socket as *const c_void),
        (c"bind", bind as *const c_void),
        (c"listen", listen as *const c_void),
        (c"connect", connect as *const c_void),
        (c"getifaddrs", getifaddrs as *const c_void),
        (c"freeifaddrs", freeifaddrs as *const c_void),
    ]
}

/// An outcome as the C library says it.
fn result(outcome: Result<c_int, Errno>) -> c_int {
    outcome.unwrap_or_else(|errno| {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = errno.raw_os_error() };
        -1
    })
}

fn registry() -> Result<&'static Registry, Errno> {
    REGISTRY.get().ok_or(Errno::ACCESS)
}

fn is_internet(domain: c_int) -> bool {
    domain == libc::AF_INET || domain == libc::AF_INET6
}

extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let is_tcp = kind & !flags == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&protocol);
    if !is_internet(domain) || !is_tcp {
        // The sandbox refuses what is of no use.
        // SAFETY: numbers.
        return unsafe { libc::socket(domain, kind, protocol) };
    }
    let made = || {
        let socket = registry()?.socket(domain == libc::AF_INET6)?;
        if kind & libc::SOCK_NONBLOCK != 0 {
            fcntl_setfl(&socket, fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
        }
        if kind & libc::SOCK_CLOEXEC == 0 {
            fcntl_setfd(&socket, FdFlags::empty())?;
        }
        Ok(socket.into_raw_fd())
    };
    result(made())
}

/// The address of a call, if it is one of the Internet.
///
/// # Safety
/// The pointer is null or points at `bytes` bytes.
unsafe fn internet(address: *const libc::sockaddr, bytes: libc::socklen_t) -> Option<SocketAddr> {
    let bytes = bytes as usize;
    if address.is_null() || bytes < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: by the contract above.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET if bytes >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: as its family says, and long enough.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if bytes >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as its family says, and long enough.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// A descriptor of the caller's, while the call lasts.
fn borrowed(socket: c_int) -> Result<BorrowedFd<'static>, Errno> {
    if socket < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: as long as the caller's own call would use it; a wrong number is an error there, too.
    Ok(unsafe { BorrowedFd::borrow_raw(socket) })
}

extern "C" fn bind(socket: c_int, address: *const libc::sockaddr, bytes: libc::socklen_t) -> c_int {
    // SAFETY: as the C function's caller says.
    let Some(to) = (unsafe { internet(address, bytes) }) else {
        // SAFETY: as above.
        return unsafe { libc::bind(socket, address, bytes) };
    };
    result(borrowed(socket).and_then(|socket| registry()?.bind(socket, to)).map(|()| 0))
}

extern "C" fn listen(socket: c_int, backlog: c_int) -> c_int {
    let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
    result(borrowed(socket).and_then(|socket| registry()?.listen(socket, backlog)).map(|()| 0))
}

extern "C" fn connect(
    socket: c_int,
    address: *const libc::sockaddr,
    bytes: libc::socklen_t,
) -> c_int {
    // SAFETY: as the C function's caller says.
    let Some(to) = (unsafe { internet(address, bytes) }) else {
        // SAFETY: as above.
        return unsafe { libc::connect(socket, address, bytes) };
    };
    result(borrowed(socket).and_then(|socket| connect_to(socket, to)).map(|()| 0))
}

/// The supervisor does not wait for a connection: one that the caller waits for is waited for here.
fn connect_to(socket: BorrowedFd<'_>, to: SocketAddr) -> Result<(), Errno> {
    let flags = fcntl_getfl(socket)?;
    if flags.contains(OFlags::NONBLOCK) {
        return registry()?.connect(socket, to);
    }
    fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
    let outcome = registry()?.connect(socket, to);
    let outcome = if outcome == Err(Errno::INPROGRESS) { wait(socket) } else { outcome };
    fcntl_setfl(socket, flags)?;
    outcome
}

fn wait(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => return socket_error(socket)?,
        }
    }
}

/// An address as long as any of the Internet.
#[repr(C)]
union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// The list that NCCL is given: one interface, and what it points at.
#[repr(C)]
struct List {
    /// First, so that the list is freed by this address.
    entry: libc::ifaddrs,
    name: CString,
    address: Address,
    mask: Address,
}

fn address(ip: IpAddr, scope: u32) -> Address {
    match ip {
        IpAddr::V4(v4) => Address {
            v4: libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from(v4).to_be() },
                sin_zero: [0; 8],
            },
        },
        IpAddr::V6(v6) => Address {
            v6: libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.octets() },
                sin6_scope_id: scope,
            },
        },
    }
}

/// The mask of a network with so many bits.
fn mask(ip: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match ip {
        IpAddr::V4(_) => Ipv4Addr::from(!u32::MAX.checked_shr(prefix).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from(!u128::MAX.checked_shr(prefix).unwrap_or(0)).into(),
    }
}

fn list(interface: &Interface) -> Result<Box<List>, Errno> {
    let ip: IpAddr = interface.address.parse().map_err(|_| Errno::INVAL)?;
    let name = CString::new(interface.name.as_str()).map_err(|_| Errno::INVAL)?;
    let mut list = Box::new(List {
        entry: libc::ifaddrs {
            ifa_next: null_mut(),
            ifa_name: null_mut(),
            ifa_flags: interface.flags,
            ifa_addr: null_mut(),
            ifa_netmask: null_mut(),
            ifa_ifu: null_mut(),
            ifa_data: null_mut(),
        },
        name,
        address: address(ip, interface.scope),
        mask: address(mask(ip, interface.prefix), 0),
    });
    list.entry.ifa_name = list.name.as_ptr().cast_mut();
    list.entry.ifa_addr = (&raw mut list.address).cast();
    list.entry.ifa_netmask = (&raw mut list.mask).cast();
    Ok(list)
}

extern "C" fn getifaddrs(first: *mut *mut libc::ifaddrs) -> c_int {
    let found = registry().and_then(Registry::interface).and_then(|found| list(&found));
    result(found.map(|list| {
        // SAFETY: the C function's caller gives a place for the list.
        unsafe { *first = Box::into_raw(list).cast() };
        0
    }))
}

extern "C" fn freeifaddrs(first: *mut libc::ifaddrs) {
    if !first.is_null() {
        // SAFETY: what `getifaddrs` above gave is a `List`, whose first part this is.
        drop(unsafe { Box::from_raw(first.cast::<List>()) });
    }
}
