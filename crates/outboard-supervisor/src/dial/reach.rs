//! Where a server connects because a client asks for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The addresses to which a server connects because a client asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Those of private networks, but for those of this machine alone, those of one link, and those
    /// at which clouds keep credentials.
    #[default]
    Private,
    /// Those in these networks.
    Networks(Vec<IpNet>),
    /// None: its workers are linked to no others.
    Nowhere,
}

/// What providers' networks have inside (RFC 6598).
const SHARED: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);

/// Where clouds give a machine its credentials, as far as that is in private networks and not
/// link-local: Alibaba's, AWS's, Google's.
const CREDENTIALS: [IpNet; 3] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 100, 100, 200), 32)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128)),
];

impl Reach {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            Reach::Private => is_private(address),
            Reach::Networks(networks) => networks.iter().any(|network| network.contains(&address)),
            Reach::Nowhere => false,
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    let is_inside = match address {
        IpAddr::V4(v4) => v4.is_private() || SHARED.contains(&v4),
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    is_inside && !CREDENTIALS.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_reach_or_not() {
        let private = ["10.1.2.3", "172.16.0.1", "192.168.9.9", "100.64.0.1", "100.127.255.255"];
        for address in private.into_iter().chain(["fd00::1", "fc01::1", "::ffff:10.0.0.1"]) {
            assert!(Reach::Private.has(address.parse().unwrap()), "{address}");
            assert!(!Reach::Nowhere.has(address.parse().unwrap()), "{address}");
        }
        let far = ["8.8.8.8", "100.128.0.1", "2001:db8::1", "::ffff:8.8.8.8", "172.32.0.1"];
        let own =
            ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "::ffff:0:0"];
        let link = ["169.254.169.254", "::ffff:169.254.0.1", "fe80::1", "224.0.0.1", "ff02::1"];
        let clouds = ["100.100.100.200", "::ffff:100.100.100.200", "fd00:ec2::254", "fd20:ce::254"];
        for address in far.into_iter().chain(own).chain(link).chain(clouds) {
            assert!(!Reach::Private.has(address.parse().unwrap()), "{address}");
        }
        let some = Reach::Networks(vec!["10.1.0.0/16".parse().unwrap()]);
        assert!(some.has("10.1.255.1".parse().unwrap()));
        assert!(some.has("::ffff:10.1.0.1".parse().unwrap()));
        assert!(!some.has("10.2.0.1".parse().unwrap()) && !some.has("127.0.0.1".parse().unwrap()));
        let loopback = Reach::Networks(vec!["127.0.0.0/8".parse().unwrap()]);
        assert!(loopback.has("127.0.0.1".parse().unwrap()));
    }
}
