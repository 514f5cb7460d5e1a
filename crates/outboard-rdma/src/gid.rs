//! Addresses of ports.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A global identifier: 128 bits that look like an address of IPv6, and are one in Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address of the Internet Protocol that it stands for.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// Whether it counts on one link only.
    #[must_use]
    pub fn is_link_local(self) -> bool {
        Ipv6Addr::from(self.0).is_unicast_link_local()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

/// How packets to a [`Gid`] travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, without the Internet Protocol: not beyond a router.
    RoceV1,
    /// UDP.
    RoceV2,
}

/// One of a port's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// The identifier.
    pub gid: Gid,
    /// Its place in the port's table.
    pub index: u8,
    /// Its kind.
    pub kind: GidKind,
}

/// The one of a port in Ethernet by which it is reached best: the wanted address, or one of IPv4,
/// or one that counts beyond its link.
pub(crate) fn choose(gids: &[GidEntry], wanted: Option<IpAddr>) -> Option<GidEntry> {
    let rank = |entry: &GidEntry| {
        let ip = entry.gid.ip();
        (
            Some(ip) == wanted,
            entry.kind == GidKind::RoceV2,
            ip.is_ipv4(),
            !entry.gid.is_link_local(),
            std::cmp::Reverse(entry.index),
        )
    };
    gids.iter().copied().max_by_key(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ip: &str, index: u8, kind: GidKind) -> GidEntry {
        let gid = match ip.parse().unwrap() {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        };
        GidEntry { gid, index, kind }
    }

    #[test]
    fn the_best_way_to_a_port_is_chosen() {
        let all = [
            entry("fe80::1", 0, GidKind::RoceV1),
            entry("fe80::1", 1, GidKind::RoceV2),
            entry("10.0.0.1", 2, GidKind::RoceV1),
            entry("10.0.0.1", 3, GidKind::RoceV2),
            entry("10.1.0.1", 5, GidKind::RoceV2),
            entry("2001:db8::1", 4, GidKind::RoceV2),
        ];
        let index = |gids: &[GidEntry], wanted: Option<&str>| {
            choose(gids, wanted.map(|text| text.parse().unwrap())).map(|found| found.index)
        };
        assert_eq!(index(&all, None), Some(3));
        assert_eq!(index(&all, Some("10.1.0.1")), Some(5));
        assert_eq!(index(&all, Some("192.0.2.1")), Some(3), "what it does not have");
        assert_eq!(index(&all[..2], None), Some(1));
        assert_eq!(index(&all[5..], Some("2001:db8::1")), Some(4));
        assert_eq!(index(&[], None), None);
        assert_eq!(all[3].gid.to_string(), "10.0.0.1");
    }
}
