//! How a server belongs to a pool.

use std::path::PathBuf;
use std::str::FromStr;

use outboard_broker_client::Urls;
use outboard_pool::words::LabelText;
use outboard_supervisor::Config;
use outboard_supervisor::pool::{self, Broker};
use outboard_transport::tls::Fingerprint;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The broker of the pool to which the server belongs, https://HOST[:PORT], or all of them with
    /// commas between them: the one that leads is told how the server is, and clients need a lease
    /// of the pool, or a token of this server's own.
    #[arg(long, value_name = "URL[,URL...]")]
    pool: Option<Urls>,
    /// SHA-256 of the broker's certificate.
    #[arg(long, value_name = "sha256:HEX", requires = "pool", conflicts_with = "pool_ca")]
    pool_fingerprint: Option<Fingerprint>,
    /// Authorities that sign the broker's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "pool")]
    pool_ca: Option<PathBuf>,
    /// A file with the server's token at the broker.
    #[arg(long, value_name = "FILE", requires = "pool")]
    pool_token_file: Option<PathBuf>,
    /// The server's certificate at the broker, in PEM.
    #[arg(long, value_name = "FILE", requires = "pool_key")]
    pool_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "pool_cert")]
    pool_key: Option<PathBuf>,
    /// Where clients of the pool reach this server, HOST:PORT. Without it, where it listens.
    #[arg(long, value_name = "ADDR", requires = "pool")]
    pool_address: Option<String>,
    /// What requests can say of where they want to be, such as rack=r7.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', requires = "pool")]
    label: Vec<Label>,
    /// The name by which leases of the pool mean this server. Without it the machine's name.
    #[arg(long, value_name = "NAME")]
    pool_name: Option<String>,
    /// A file with public keys of the pool's broker (k4.public.…), one a line, for a server that
    /// is not told by the broker.
    #[arg(long, value_name = "FILE")]
    pool_signer: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Label(LabelText, LabelText);

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Label, String> {
        let wrong = || format!("`{text}` is not a label, such as rack=r7");
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let part = |text: &str| text.trim().parse().map_err(|_| wrong());
        Ok(Label(part(key)?, part(value)?))
    }
}

impl Args {
    pub(crate) fn apply(self, config: &mut Config) {
        let labels = self.label.into_iter().map(|Label(key, value)| (key, value)).collect();
        let broker = self.pool.map(|urls| Broker {
            urls,
            fingerprint: self.pool_fingerprint,
            authorities: self.pool_ca,
            token: self.pool_token_file,
            own: self.pool_cert.zip(self.pool_key),
            address: self.pool_address,
            labels,
        });
        config.pool = pool::Config { name: self.pool_name, keys: self.pool_signer, broker };
    }

    /// Whether the server is one of a pool.
    pub(crate) fn is_set(&self) -> bool {
        self.pool.is_some() || !self.pool_signer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_key_and_a_value() {
        let label =
            |key: &str, value: &str| Ok(Label(key.parse().unwrap(), value.parse().unwrap()));
        assert_eq!("rack=r7".parse(), label("rack", "r7"));
        for wrong in ["", "rack", "=r7", "rack=", "ra ck=r7"] {
            assert!(wrong.parse::<Label>().unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
