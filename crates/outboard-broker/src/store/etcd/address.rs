//! Where an etcd is, and by what broker and etcd know each other.

use outboard_transport::tls::{Anchor, certificates_in, client_config};
use rustls::ClientConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The port at which etcd answers clients unless it is told another one.
const DEFAULT_PORT: u16 = 2379;
/// What the keys of a pool begin with unless another prefix is named.
const DEFAULT_PREFIX: &str = "outboard";

/// Why an etcd cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum BadEtcd {
    /// The text is no address.
    #[error("`{0}` names no etcd; write etcd://HOST:PORT[,HOST:PORT...][/PREFIX]")]
    Address(String),
    /// Whoever is in between could change leases.
    #[error(
        "etcd at {0} would be asked in the clear, and whoever is in between could give out devices: \
         name the authorities of its certificate with --store-ca"
    )]
    InTheClear(String),
    /// A file cannot be used.
    #[error("{option}: {} cannot be used: {reason}", path.display())]
    File {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The members of an etcd, and what the pool's keys there begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAddress {
    members: Vec<Member>,
    prefix: String,
}

/// A member of an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Member {
    fn parse(text: &str) -> Option<Member> {
        let (host, port) = match text.strip_prefix('[') {
            Some(inside) => {
                let (host, behind) = inside.split_once(']')?;
                (host, behind.strip_prefix(':'))
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok())?;
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
        let is_one = port > 0 && !host.is_empty() && host.chars().all(fine);
        is_one.then(|| Member { host: host.to_owned(), port })
    }

    fn is_this_machine(&self) -> bool {
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.host == "localhost" || self.host.parse().is_ok_and(is_loopback)
    }
}

impl FromStr for EtcdAddress {
    type Err = BadEtcd;

    fn from_str(text: &str) -> Result<EtcdAddress, BadEtcd> {
        let wrong = || BadEtcd::Address(text.to_owned());
        let rest = text.strip_prefix("etcd://").ok_or_else(wrong)?;
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, DEFAULT_PREFIX));
        let prefix = prefix.trim_matches('/');
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !prefix.chars().all(fine) {
            return Err(wrong());
        }
        let prefix = if prefix.is_empty() { DEFAULT_PREFIX } else { prefix };
        let members: Option<Vec<Member>> = hosts.split(',').map(Member::parse).collect();
        let members = members.ok_or_else(wrong)?;
        Ok(EtcdAddress { members, prefix: format!("/{prefix}/") })
    }
}

/// By what broker and etcd know each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Authorities that sign the certificates of etcd's members, in PEM.
    pub authorities: Option<PathBuf>,
    /// The broker's certificate, in PEM, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// An etcd that can be asked.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(super) members: Vec<Member>,
    pub(super) prefix: String,
    /// Without them, it is asked in the clear.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Cluster {
    /// The etcd at that address.
    ///
    /// # Errors
    ///
    /// If a file cannot be used, or strangers could listen.
    pub fn new(address: &EtcdAddress, trust: &Trust) -> Result<Cluster, BadEtcd> {
        let EtcdAddress { members, prefix } = address.clone();
        let tls = trust.authorities.as_deref().map(|path| settings(path, trust)).transpose()?;
        let far = members.iter().find(|member| !member.is_this_machine());
        if let (None, Some(far)) = (&tls, far) {
            return Err(BadEtcd::InTheClear(far.to_string()));
        }
        Ok(Cluster { members, prefix, tls })
    }
}

fn settings(authorities: &Path, trust: &Trust) -> Result<Arc<ClientConfig>, BadEtcd> {
    let wrong = |option: &'static str, path: &Path, reason: &dyn fmt::Display| BadEtcd::File {
        option,
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let read =
        |option, path: &Path| certificates_in(path).map_err(|error| wrong(option, path, &error));
    let anchor = Anchor::Authorities(read("--store-ca", authorities)?);
    let own = match &trust.own {
        None => None,
        Some((certificate, key)) => {
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| wrong("--store-key", key, &error))?;
            Some((read("--store-cert", certificate)?, secret))
        }
    };
    client_config(anchor, own).map_err(|error| wrong("--store-ca", authorities, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(Vec<String>, String)> {
        let address = text.parse::<EtcdAddress>().ok()?;
        Some((address.members.iter().map(Member::to_string).collect(), address.prefix))
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let of = |members: &[&str], prefix: &str| {
            Some((members.iter().map(|&member| member.to_owned()).collect(), prefix.to_owned()))
        };
        assert_eq!(read("etcd://db1"), of(&["db1:2379"], "/outboard/"));
        assert_eq!(read("etcd://a:1,b:2,[::1]:3/x/y/"), of(&["a:1", "b:2", "[::1]:3"], "/x/y/"));
        assert_eq!(read("etcd://a/"), of(&["a:2379"], "/outboard/"));
        for wrong in
            ["", "db1:1", "https://db1", "etcd://", "etcd://a,", "etcd://a:0", "etcd://a/b c"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_this_machine_is_asked_in_the_clear() {
        let cluster = |text: &str, trust: &Trust| Cluster::new(&text.parse().unwrap(), trust);
        let none = Trust::default();
        assert!(cluster("etcd://127.0.0.1:1,localhost:2,[::1]:3", &none).is_ok());
        let refused = cluster("etcd://127.0.0.1:1,db2", &none).unwrap_err().to_string();
        assert!(refused.contains("db2:2379") && refused.contains("--store-ca"), "{refused}");
        let missing = Trust { authorities: Some("/no/file".into()), own: None };
        let refused = cluster("etcd://db2", &missing).unwrap_err().to_string();
        assert!(refused.contains("/no/file"), "{refused}");
    }
}
