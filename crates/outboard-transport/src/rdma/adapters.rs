//! Which adapters this machine has, and by which of them it reaches a peer's.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnet::IpNet;
use outboard_rdma::{Device, Endpoint, Error, Gid, GidEntry, GidKind, Mtu};
use outboard_wire::handshake::rdma::{AdapterAddress, Adapters};

use super::nearness;

/// The port to which packets of RoCE are sent. Nothing is sent here: the kernel is asked for the
/// way there.
const ROCE_PORT: u16 = 4791;

/// Which of this machine's adapters may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Names of devices; none named are all.
    pub devices: Vec<String>,
    /// Networks in which their addresses must be; none named are all. An address of InfiniBand
    /// counts as one of IPv6.
    pub networks: Vec<IpNet>,
    /// PCI devices, such as `0000:1b:00.0`: of the adapters that may be used so far, those nearest
    /// to any of them may. None named are no bound, nor are those whose places the kernel does not
    /// show.
    pub near: Vec<String>,
}

/// A port of an adapter, by one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    device: String,
    address: AdapterAddress,
    mtu: Mtu,
}

/// Whether the kernel shows adapters at all.
pub fn has_adapters() -> bool {
    outboard_rdma::kernel_has_devices()
}

/// Loads the library of adapters, if there are any. Later uses load nothing more.
pub fn load() {
    if has_adapters() {
        // Whoever uses it learns why it cannot be had.
        let _ = outboard_rdma::names();
    }
}

impl Allowed {
    /// The ports that may be used, those of devices named first before others.
    ///
    /// # Errors
    /// A sentence that says why there are none.
    pub fn ports(&self) -> Result<Vec<Port>, Error> {
        let names =
            if self.devices.is_empty() { outboard_rdma::names()? } else { self.devices.clone() };
        let mut ports = Vec::new();
        let mut failed = None;
        for name in &names {
            match Device::open(name).and_then(|device| device.ports()) {
                Ok(found) => ports.extend(found.iter().flat_map(|port| self.addresses(name, port))),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if !self.near.is_empty() {
            let has_port = |name: &&str| ports.iter().any(|port| port.device == *name);
            let usable: Vec<&str> = names.iter().map(String::as_str).filter(has_port).collect();
            let nearest = nearness::nearest(&usable, &self.near);
            ports.retain(|port| nearest.contains(&port.device.as_str()));
        }
        ports.truncate(Adapters::MOST);
        match failed {
            Some(error) if ports.is_empty() => Err(error),
            _ if ports.is_empty() => Err(Error::NoPort { device: names.join(", ") }),
            _ => Ok(ports),
        }
    }

    fn addresses(&self, device: &str, port: &outboard_rdma::Port) -> Vec<Port> {
        let mut entries: Vec<&GidEntry> =
            port.gids.iter().filter(|entry| self.has(entry.gid.ip())).collect();
        // What a router forwards comes first; of one address, the kind that one forwards.
        entries.sort_by_key(|entry| (entry.gid.is_link_local(), entry.kind != GidKind::RoceV2));
        let mut addresses: Vec<Gid> = Vec::new();
        for entry in entries {
            if !addresses.contains(&entry.gid) {
                addresses.push(entry.gid);
            }
        }
        if !port.ethernet {
            // All are of one port in one subnet.
            addresses.truncate(1);
        }
        let address = |gid: Gid| AdapterAddress { gid: gid.0, ethernet: port.ethernet };
        let made = |gid| Port { device: device.to_owned(), address: address(gid), mtu: port.mtu };
        addresses.into_iter().map(made).collect()
    }

    fn has(&self, ip: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(&ip))
    }

    /// The ways from this machine's adapters to a peer's, each by the place of the peer's address
    /// and a port of this machine.
    ///
    /// # Errors
    /// A sentence that says why there are none.
    pub fn ways(&self, peer: &[AdapterAddress]) -> io::Result<Vec<(usize, Port)>> {
        let ports = self.ports()?;
        let ways = if self.devices.is_empty() {
            ways_by_route(&ports, peer, &own_address)
        } else {
            // Who names devices has chosen, whatever the routes say.
            ways_of_each(&ports, peer)
        };
        at_least_one(ways, &ports, peer)
    }
}

/// The ways from these ports to a peer's that look best by their addresses, for a process that may
/// not ask the kernel for routes: none from a port if another one is nearer.
///
/// # Errors
/// As for [`Allowed::ways`].
pub fn nearest_ways(ports: &[Port], peer: &[AdapterAddress]) -> io::Result<Vec<(usize, Port)>> {
    let all = ways_of_each(ports, peer);
    let is_nearest = |(place, port): &&(usize, Port)| {
        let theirs = &peer[*place];
        let alike = all.iter().map(|(_, own)| own).filter(|own| own.is_alike(theirs));
        alike.map(|own| own.common_prefix(theirs)).max() == Some(port.common_prefix(theirs))
    };
    at_least_one(all.iter().filter(is_nearest).cloned().collect(), ports, peer)
}

/// The ways, if there are any.
fn at_least_one(
    ways: Vec<(usize, Port)>,
    ports: &[Port],
    peer: &[AdapterAddress],
) -> io::Result<Vec<(usize, Port)>> {
    if !ways.is_empty() {
        return Ok(ways);
    }
    let shown = |address: &AdapterAddress| Gid(address.gid).to_string();
    let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(", ");
    Err(io::Error::new(
        io::ErrorKind::NetworkUnreachable,
        format!(
            "no RDMA adapter of this machine ({}) is in one network with one of the server's ({})",
            list(&mut ports.iter().map(|port| shown(&port.address))),
            list(&mut peer.iter().map(shown)),
        ),
    ))
}

/// A way to each of the peer's adapters that the kernel would reach by an adapter: `from` tells
/// from which of this machine's addresses packets to another one leave.
fn ways_by_route(
    ports: &[Port],
    peer: &[AdapterAddress],
    from: &dyn Fn(IpAddr) -> IpAddr,
) -> Vec<(usize, Port)> {
    let way = |(place, theirs): (usize, &AdapterAddress)| {
        let source = theirs.ethernet.then(|| from(Gid(theirs.gid).ip()));
        let fits = |port: &&Port| {
            port.is_alike(theirs)
                && source.is_none_or(|source| Gid(port.address.gid).ip() == source)
        };
        Some((place, ports.iter().find(fits)?.clone()))
    };
    peer.iter().enumerate().filter_map(way).collect()
}

/// A way from each device to that of the peer's adapters which is nearest by its address; the
/// devices take turns among those that are as near. A device's first address counts that the peer
/// has the like of: link-local ones, which say nothing of networks, are its last.
fn ways_of_each(ports: &[Port], peer: &[AdapterAddress]) -> Vec<(usize, Port)> {
    let mut firsts: Vec<&Port> = Vec::new();
    for port in ports.iter().filter(|port| peer.iter().any(|theirs| port.is_alike(theirs))) {
        if firsts.iter().all(|first| first.device != port.device) {
            firsts.push(port);
        }
    }
    let way = |(turn, port): (usize, &Port)| {
        let nearness = |theirs: &AdapterAddress| port.common_prefix(theirs);
        let alike = |(_, theirs): &(usize, &AdapterAddress)| port.is_alike(theirs);
        let alike: Vec<_> = peer.iter().enumerate().filter(alike).collect();
        let nearest = alike.iter().map(|(_, theirs)| nearness(theirs)).max()?;
        let nearest: Vec<usize> = alike
            .iter()
            .filter(|(_, theirs)| nearness(theirs) == nearest)
            .map(|(place, _)| *place)
            .collect();
        Some((nearest[turn % nearest.len()], port.clone()))
    };
    firsts.into_iter().enumerate().filter_map(way).collect()
}

/// The address of this machine from which packets to another one leave. An address of no machine,
/// if they do not.
fn own_address(to: IpAddr) -> IpAddr {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let found = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((to, ROCE_PORT))?;
        socket.local_addr()
    });
    found.map_or(any, |address| address.ip())
}

impl Port {
    /// Where it is reached.
    pub fn address(&self) -> AdapterAddress {
        self.address
    }

    /// Whether packets from here could reach that address at all.
    fn is_alike(&self, theirs: &AdapterAddress) -> bool {
        let own = &self.address;
        own.ethernet == theirs.ethernet
            && if own.ethernet {
                Gid(own.gid).ip().is_ipv4() == Gid(theirs.gid).ip().is_ipv4()
            } else {
                // The first half names the subnet.
                own.gid[..8] == theirs.gid[..8]
            }
    }

    /// How many bits of both addresses are the same from the first on. In InfiniBand those say
    /// nothing that differ between machines of a subnet.
    fn common_prefix(&self, theirs: &AdapterAddress) -> u32 {
        let [own, theirs] = [self.address.gid, theirs.gid].map(u128::from_be_bytes);
        let common = (own ^ theirs).leading_zeros();
        if self.address.ethernet { common } else { common.min(64) }
    }

    /// Opens it.
    ///
    /// # Errors
    /// As [`Device::open`] and [`Device::endpoint`].
    pub fn open(&self) -> Result<Endpoint, Error> {
        Device::open(&self.device)?.endpoint(Some(Gid(self.address.gid).ip()))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.address.ethernet { "Ethernet" } else { "InfiniBand" };
        let (device, gid, bytes) = (&self.device, Gid(self.address.gid), self.mtu.bytes());
        write!(f, "{device} at {gid} ({kind}, packets of {bytes} bytes)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(device: &str, ip: &str, ethernet: bool) -> Port {
        let gid = match ip.parse().unwrap() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let address = AdapterAddress { gid, ethernet };
        Port { device: device.to_owned(), address, mtu: Mtu::MOST }
    }

    fn named(ways: Vec<(usize, Port)>) -> Vec<(usize, String)> {
        ways.into_iter().map(|(place, port)| (place, port.device)).collect()
    }

    fn by_route(own: &[Port], peer: &[Port], from: &str) -> Vec<(usize, String)> {
        let peer: Vec<_> = peer.iter().map(Port::address).collect();
        named(ways_by_route(own, &peer, &|_| from.parse().unwrap()))
    }

    fn of_each(own: &[Port], peer: &[Port]) -> Vec<(usize, String)> {
        let peer: Vec<_> = peer.iter().map(Port::address).collect();
        named(ways_of_each(own, &peer))
    }

    #[test]
    fn ways_are_where_routes_lead() {
        let own = [port("a", "10.0.0.1", true), port("b", "10.1.0.1", true)];
        let peer = [port("p", "10.1.0.9", true), port("q", "10.1.0.8", true)];
        let both = [(0, "b".to_owned()), (1, "b".to_owned())];
        assert_eq!(by_route(&own, &peer, "10.1.0.1"), both);
        assert_eq!(by_route(&own, &peer, "192.0.2.1"), [], "by what is no adapter");
    }

    #[test]
    fn infiniband_goes_within_its_subnet() {
        let own = [port("e", "fe80::1", true), port("i", "fe80::2", false)];
        let peer = [port("p", "2001:db8::3", false), port("p", "fe80::4", false)];
        assert_eq!(by_route(&own, &peer, "fe80::1"), [(1, "i".to_owned())]);
        assert_eq!(of_each(&own, &peer), [(1, "i".to_owned())]);
    }

    #[test]
    fn devices_that_are_named_go_to_those_nearest_to_them() {
        let own = [port("a", "10.0.0.1", true), port("b", "10.0.1.1", true)];
        let peer = [port("q", "10.0.1.2", true), port("p", "10.0.0.2", true)];
        let pairs = [(1, "a".to_owned()), (0, "b".to_owned())];
        assert_eq!(of_each(&own, &peer), pairs);
        assert_eq!(of_each(&own[..1], &peer), pairs[..1]);
        assert_eq!(of_each(&own, &[port("v", "2001:db8::1", true)]), []);
        let link_local = [own[0].clone(), port("a", "fe80::1", true), own[1].clone()];
        let theirs = [port("q", "fe80::3", true), port("q", "10.0.1.2", true)];
        let theirs = [&theirs[..], &[port("p", "fe80::2", true), port("p", "10.0.0.2", true)]];
        assert_eq!(of_each(&link_local, &theirs.concat()), [(3, "a".into()), (1, "b".into())]);
        let own = [port("i", "fe80::1", false), port("j", "fe80::2", false)];
        let peer = [port("p", "fe80::8", false), port("q", "fe80::9", false)];
        let in_turn = [(0, "i".to_owned()), (1, "j".to_owned())];
        assert_eq!(of_each(&own, &peer), in_turn, "all are as near in a subnet");
    }

    #[test]
    fn without_routes_each_adapter_is_reached_from_those_nearest_to_it() {
        let nearest = |own: &[Port], peer: &[Port]| {
            let peer: Vec<_> = peer.iter().map(Port::address).collect();
            nearest_ways(own, &peer).map(named)
        };
        let own = [port("a", "10.0.0.1", true), port("b", "10.0.1.1", true)];
        let first = [port("p", "10.0.0.2", true)];
        assert_eq!(nearest(&own, &first).unwrap(), [(0, "a".to_owned())]);
        let both = [port("q", "10.0.1.2", true), port("p", "10.0.0.2", true)];
        assert_eq!(nearest(&own, &both).unwrap(), [(1, "a".to_owned()), (0, "b".to_owned())]);
        let of_one_device = [port("a", "10.0.0.9", true), port("a", "10.0.0.3", true)];
        assert_eq!(nearest(&of_one_device, &first).unwrap(), [(0, "a".to_owned())]);
        let alike = [port("i", "fe80::1", false), port("j", "fe80::2", false)];
        let one = [port("p", "fe80::8", false)];
        assert_eq!(nearest(&alike, &one).unwrap(), [(0, "i".to_owned()), (0, "j".to_owned())]);
        let why = nearest(&own, &[port("v", "2001:db8::1", true)]).unwrap_err().to_string();
        assert!(why.contains("10.0.0.1, 10.0.1.1") && why.contains("2001:db8::1"), "{why}");
    }

    #[test]
    fn addresses_are_those_of_allowed_networks() {
        let gid = |ip: &str| port("a", ip, true).address.gid;
        let entry = |ip, index, kind| GidEntry { gid: Gid(gid(ip)), index, kind };
        let port = outboard_rdma::Port {
            number: 1,
            ethernet: true,
            lid: 0,
            mtu: Mtu::MOST,
            gids: vec![
                entry("fe80::1", 0, GidKind::RoceV1),
                entry("fe80::1", 1, GidKind::RoceV2),
                entry("10.0.0.1", 2, GidKind::RoceV1),
                entry("10.0.0.1", 3, GidKind::RoceV2),
            ],
        };
        let found = |networks: &[&str]| {
            let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
            let allowed = Allowed { networks, ..Allowed::default() };
            let found = allowed.addresses("a", &port);
            found.iter().map(|port| Gid(port.address.gid).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), ["10.0.0.1", "fe80::1"]);
        assert_eq!(found(&["10.0.0.0/8"]), ["10.0.0.1"]);
        assert!(found(&["192.0.2.0/24"]).is_empty());
    }

    #[test]
    fn the_kernel_tells_the_way_to_an_address() {
        let here: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(own_address(here), here);
    }
}
