//! Flags of `outboard serve` for metrics, traces and administration.

use std::path::PathBuf;

use outboard_supervisor::traces::Collector;
use outboard_supervisor::{Config, Socket, metrics, traces};

#[derive(clap::Args)]
pub(crate) struct ObserveArgs {
    /// The Unix socket for `outboard sessions`, `top`, `kill`, `trace` and `upgrade`, which only
    /// the server's own user and root may use, with the secret that lies beside it (`.secret` in
    /// place of `.sock`); `none` for none. Without it PORT.admin.sock beside
    /// the socket for clients.
    #[arg(long, value_name = "PATH|none")]
    admin: Option<PathBuf>,
    /// The address at which monitoring systems read metrics over HTTP (/metrics, /healthz,
    /// /readyz): a port of the loopback interface, or ADDRESS[:PORT]. Without it the server offers
    /// none.
    #[arg(long, value_name = "PORT|ADDR", value_parser = metrics_address)]
    metrics: Option<String>,
    /// Let other machines read the metrics, which contain owners' names.
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
    /// Names by which monitoring systems ask for the metrics, beside addresses, `localhost`, this
    /// machine's own name and that of --metrics. Requests by other names get 421, so that no web
    /// page reads the metrics through somebody's browser.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "metrics")]
    metrics_host: Vec<String>,
    /// Send spans of every session to this collector, http://HOST[:PORT], as OTLP over HTTP.
    /// `outboard trace` records one session without a collector.
    #[arg(long, value_name = "URL")]
    traces: Option<Collector>,
}

impl ObserveArgs {
    pub(crate) fn apply(self, config: &mut Config) {
        config.admin = match self.admin {
            None => Socket::Usual,
            Some(path) if path.as_os_str() == "none" => Socket::Off,
            Some(path) => Socket::At(path),
        };
        config.traces = traces::Config { collector: self.traces };
        config.metrics = metrics::Config {
            listen: self.metrics,
            public: self.metrics_public,
            hosts: self.metrics_host,
        };
    }
}

/// The port of metrics unless another one is named.
const METRICS_PORT: u16 = 9471;

fn metrics_address(text: &str) -> Result<String, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(format!("127.0.0.1:{port}"));
    }
    if text.is_empty() || text.contains(['/', ' ']) {
        return Err("name a port, or ADDRESS[:PORT]".to_owned());
    }
    Ok(super::with_port_or(text, METRICS_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback() {
        for (given, wanted) in [
            ("9100", "127.0.0.1:9100"),
            ("10.0.0.1", "10.0.0.1:9471"),
            ("gpu1:1", "gpu1:1"),
            ("::1", "[::1]:9471"),
        ] {
            assert_eq!(metrics_address(given).as_deref(), Ok(wanted));
        }
        assert!(metrics_address("http://x").is_err() && metrics_address("").is_err());
    }
}
