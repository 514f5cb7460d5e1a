//! By which names a server tells its metrics. A browser asks by the name that it was given, and
//! whoever owns a name may point it at this machine: a page from there would then read the metrics.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::HOST;
use hyper::{HeaderMap, Uri};

/// The names that are this server's, beside addresses.
#[derive(Debug)]
pub(super) struct Names(Vec<String>);

impl Names {
    /// This machine's names, the host where the metrics are to be found, and others.
    pub(super) fn new(listen: &str, others: &[String]) -> Names {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let short = machine.split('.').next().map(str::to_owned);
        let listen = listen.rsplit_once(':').map(|(host, _)| host.to_owned());
        let all = others.iter().cloned().chain(listen).chain(short);
        let all = all.chain([machine, "localhost".to_owned()]);
        Names(all.map(|name| plain(&name).to_owned()).filter(|name| !name.is_empty()).collect())
    }

    /// Whether a request is for one of them. One that names nobody comes from no browser.
    pub(super) fn are_asked(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let in_headers = headers.get_all(HOST).iter().map(|host| host.to_str().ok());
        let in_uri = uri.authority().map(|authority| Some(authority.as_str()));
        in_headers.chain(in_uri).all(|host| host.is_some_and(|host| self.have(host)))
    }

    fn have(&self, host: &str) -> bool {
        if host.is_empty() {
            return true;
        }
        if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']'))
        {
            return address.parse::<Ipv6Addr>().is_ok() && is_port_or_nothing(rest);
        }
        let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
        let is_own = |own: &String| own.eq_ignore_ascii_case(plain(name));
        let is_known = name.parse::<Ipv4Addr>().is_ok() || self.0.iter().any(is_own);
        is_known && is_port_or_nothing(rest)
    }
}

fn is_port_or_nothing(rest: &str) -> bool {
    rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// A name without the dot that says that nothing follows.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &Names, uri: &str, hosts: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        names.are_asked(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn addresses_and_own_names_are_a_servers_and_no_others() {
        let names = Names::new("gpu1.example.org:9471", &["metrics.example.org.".to_owned()]);
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let short = machine.split('.').next().unwrap().to_owned();
        let mut own = vec![
            "127.0.0.1:9471".to_owned(),
            "127.0.0.1".to_owned(),
            "10.1.2.3:80".to_owned(),
            "[::1]:9471".to_owned(),
            "[fd00::1]".to_owned(),
            "localhost".to_owned(),
            "LocalHost:9471".to_owned(),
            "localhost.".to_owned(),
            "gpu1.example.org:9471".to_owned(),
            "GPU1.example.org.".to_owned(),
            "metrics.example.org".to_owned(),
            String::new(),
        ];
        // A machine may have no name.
        if !short.is_empty() {
            own.extend([format!("{machine}:9471"), machine, short]);
        }
        for own in own {
            assert!(asked(&names, "/metrics", &[&own]), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:9471",
            "gpu1.evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.1",
            "0x7f000001",
            "[::1].evil.example",
            "[evil]",
            "::1",
            "user@evil.example",
            "evil.example:x",
            "a b",
            "localhost/",
        ] {
            assert!(!asked(&names, "/metrics", &[other]), "{other}");
        }
        assert!(asked(&names, "/metrics", &[]), "HTTP/1.0");
        // Any that is not its own counts, wherever it is.
        assert!(!asked(&names, "/metrics", &["localhost", "evil.example"]));
        assert!(!asked(&names, "http://evil.example/metrics", &["localhost"]));
        assert!(asked(&names, "http://localhost:9471/metrics", &["localhost"]));
        let undecodable = hyper::header::HeaderValue::from_bytes(b"\xff.example").unwrap();
        let headers = HeaderMap::from_iter([(HOST, undecodable)]);
        assert!(!names.are_asked(&"/metrics".parse().unwrap(), &headers));
    }
}
