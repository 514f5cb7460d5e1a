//! Links between workers of several servers.

use std::str::FromStr;

use ipnet::IpNet;
use outboard_supervisor::Config;
use outboard_supervisor::dial::Reach;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The networks in which this server connects to others, to copy between their devices and its
    /// own for programs that use both: 10.0.0.0/8,… ; `private` for all private networks, without
    /// loopback and link-local addresses; `none` for none, then the bytes go through the client.
    /// Servers of one user on one machine meet by their Unix sockets; others of one machine need
    /// 127.0.0.0/8 here, or an address of the machine's network.
    #[arg(long, default_value = "private", value_name = "NETWORK,…|private|none")]
    peers: Networks,
    /// Where other servers reach this one, HOST:PORT. Without it, where its client does.
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',')]
    peer_address: Vec<String>,
}

/// A network as people write it.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a network, such as 10.0.0.0/8"))
}

#[derive(Clone, Debug)]
struct Networks(Reach);

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Networks, String> {
        Ok(Networks(match text {
            "private" => Reach::Private,
            "none" => Reach::Nowhere,
            _ => Reach::Networks(text.split(',').map(network).collect::<Result<_, _>>()?),
        }))
    }
}

impl Args {
    pub(crate) fn apply(self, config: &mut Config) {
        (config.peers.reach, config.peers.addresses) = (self.peers.0, self.peer_address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_understood_or_named() {
        let reach = |text: &str| text.parse::<Networks>().map(|Networks(reach)| reach);
        assert_eq!(reach("private"), Ok(Reach::Private));
        assert_eq!(reach("none"), Ok(Reach::Nowhere));
        let two = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
        assert_eq!(reach("10.0.0.0/8, fd00::/8"), Ok(Reach::Networks(two.into())));
        assert!(reach("10.0.0.0/33").unwrap_err().contains("10.0.0.0/33"));
    }
}
