//! The interface at which other servers reach this one.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};

use ipnet::IpNet;
use outboard_control::messages::Interface;

/// Addresses that documents are written with (RFC 5737, RFC 3849): the way there is the way to all
/// others. Nothing is sent.
const ELSEWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// How the interface is chosen.
pub(super) struct Home {
    /// By its name.
    named: Option<String>,
    /// Or by its address.
    addresses: Vec<IpAddr>,
}

impl Home {
    /// By name; else where others are told to reach this server, or where it listens.
    pub(super) fn new(named: Option<String>, told: &[String], listen: &str) -> Home {
        let usual = [listen.to_owned()];
        let found = told.iter().chain(&usual).flat_map(|text| text.to_socket_addrs());
        let addresses = found.flatten().map(|found| found.ip().to_canonical());
        Home { named, addresses: addresses.filter(|found| !found.is_unspecified()).collect() }
    }

    /// The interface as it is now.
    pub(super) fn interface(&self) -> Option<Interface> {
        self.choose(&all(), &on_the_way_out())
    }

    fn choose(&self, all: &[Interface], way_out: &[IpAddr]) -> Option<Interface> {
        let is_v6 = |found: &&Interface| ip(found).is_some_and(|address| address.is_ipv6());
        if let Some(name) = &self.named {
            // Other servers may have no way to an address of IPv6, so one of IPv4 comes first.
            return all.iter().filter(|found| found.name == *name).min_by_key(is_v6).cloned();
        }
        let mut wanted = self.addresses.iter().chain(way_out);
        wanted.find_map(|wanted| all.iter().find_map(|found| with(found, *wanted)))
    }
}

/// The interface with this address, if it has it. The loop has all of its network.
fn with(interface: &Interface, wanted: IpAddr) -> Option<Interface> {
    let own = ip(interface)?;
    let is_loop = interface.flags & libc::IFF_LOOPBACK as u32 != 0;
    let loops = || IpNet::new(own, interface.prefix).is_ok_and(|all| all.contains(&wanted));
    let has_it = own == wanted || (is_loop && loops());
    has_it.then(|| Interface { address: wanted.to_string(), ..interface.clone() })
}

fn ip(interface: &Interface) -> Option<IpAddr> {
    interface.address.parse().ok()
}

/// Where a socket is bound that is the interface's, with any port.
pub(super) fn address(interface: &Interface) -> Option<SocketAddr> {
    Some(match ip(interface)? {
        IpAddr::V4(v4) => SocketAddr::from((v4, 0)),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, 0, 0, interface.scope).into(),
    })
}

/// The addresses from which this machine speaks to others.
fn on_the_way_out() -> Vec<IpAddr> {
    let own = |to: &str| {
        let to: SocketAddr = to.parse().ok()?;
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    ELSEWHERE.iter().filter_map(|to| own(to)).collect()
}

/// All interfaces that are up, one for each address.
fn all() -> Vec<Interface> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: it writes the list's beginning.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    // SAFETY: an entry of the list, or null at its end.
    let mut next = unsafe { first.as_ref() };
    while let Some(entry) = next {
        // SAFETY: the entry is the system's, whole, and lives until the list is freed.
        found.extend(unsafe { interface(entry) });
        // SAFETY: as above.
        next = unsafe { entry.ifa_next.as_ref() };
    }
    // SAFETY: the list is the system's, and nothing of it is kept.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// An entry that has an address of IP and is up.
///
/// # Safety
/// The entry is one of `getifaddrs`.
unsafe fn interface(entry: &libc::ifaddrs) -> Option<Interface> {
    if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
        return None;
    }
    // SAFETY: addresses and masks are null, or as long as their families say.
    let (address, mask) = unsafe { (socket_ip(entry.ifa_addr)?, socket_ip(entry.ifa_netmask)) };
    // SAFETY: the name is a C string.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
    let prefix = match mask.map(|(mask, _)| mask) {
        Some(IpAddr::V4(v4)) => v4.to_bits().leading_ones(),
        Some(IpAddr::V6(v6)) => v6.to_bits().leading_ones(),
        None => 0,
    };
    let (address, scope) = (address.0.to_string(), address.1);
    Some(Interface { name, flags: entry.ifa_flags, address, prefix: prefix as u8, scope })
}

/// The address of IP, and the number of its interface if it needs one.
///
/// # Safety
/// The pointer is null or points at an address as long as its family says.
unsafe fn socket_ip(address: *const libc::sockaddr) -> Option<(IpAddr, u32)> {
    // SAFETY: by the contract above.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: as its family says.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some((Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into(), 0))
        }
        libc::AF_INET6 => {
            // SAFETY: as its family says.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some((Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), v6.sin6_scope_id))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        let flags = if name == "lo" { libc::IFF_LOOPBACK as u32 } else { 0 };
        Interface { name: name.into(), flags, address: address.into(), prefix: 8, scope: 0 }
    }

    #[test]
    fn the_interface_is_the_one_that_is_named_or_has_the_address() {
        let all = [
            interface("lo", "127.0.0.1"),
            interface("eth0", "fd00::1"),
            interface("eth0", "10.0.0.1"),
            interface("ib0", "10.1.0.1"),
        ];
        let way_out = ["10.0.0.1".parse().unwrap()];
        let chosen = |named: Option<&str>, told: &[&str], listen: &str| {
            let told: Vec<String> = told.iter().map(|told| (*told).to_owned()).collect();
            let home = Home::new(named.map(str::to_owned), &told, listen);
            home.choose(&all, &way_out).map(|found| (found.name, found.address))
        };
        let is = |name: &str, address: &str| Some((name.to_owned(), address.to_owned()));
        assert_eq!(chosen(Some("eth0"), &["10.1.0.1:1"], "127.0.0.1:1"), is("eth0", "10.0.0.1"));
        assert_eq!(chosen(Some("eth7"), &["10.1.0.1:1"], "127.0.0.1:1"), None);
        assert_eq!(chosen(None, &["10.1.0.1:1"], "0.0.0.0:1"), is("ib0", "10.1.0.1"));
        // An address that only others know it by, as behind a translator.
        assert_eq!(chosen(None, &["192.0.2.7:1"], "127.0.0.1:1"), is("lo", "127.0.0.1"));
        // All of the loop's network is this machine; of others, only what it has itself.
        assert_eq!(chosen(None, &[], "127.0.0.2:1"), is("lo", "127.0.0.2"));
        assert_eq!(chosen(None, &["10.1.0.2:1"], "0.0.0.0:1"), is("eth0", "10.0.0.1"));
        assert_eq!(chosen(None, &[], "[fd00::1]:1"), is("eth0", "fd00::1"));
        assert_eq!(chosen(None, &[], "0.0.0.0:1"), is("eth0", "10.0.0.1"));
        assert_eq!(chosen(None, &[], "none"), is("eth0", "10.0.0.1"));
    }

    #[test]
    fn this_machine_has_its_loop() {
        let all = all();
        let found = all.iter().find(|found| found.address == "127.0.0.1").expect("it is there");
        assert_eq!((found.prefix, found.scope), (8, 0));
        assert!(found.flags & libc::IFF_LOOPBACK as u32 != 0);
        assert_eq!(address(found), Some("127.0.0.1:0".parse().unwrap()));
    }
}
