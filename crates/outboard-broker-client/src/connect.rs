//! An encrypted connection to a broker that is the right one.

use crate::address::{Url, Urls};
use outboard_transport::tls::{Anchor, SetupError, client_config};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a connection may take to come about.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where another broker may lead.
const PATIENCE_WITH_ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

/// Which brokers, and what they are shown.
#[derive(Clone, Debug)]
pub struct Access {
    urls: Urls,
    config: Arc<ClientConfig>,
    token: Option<String>,
}

impl Access {
    /// To the brokers at those addresses that the anchor trusts, with a certificate or a token.
    ///
    /// # Errors
    ///
    /// If authorities or certificate cannot be used.
    pub fn new(
        urls: Urls,
        anchor: Anchor,
        own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
        token: Option<String>,
    ) -> Result<Access, SetupError> {
        Ok(Access { urls, config: client_config(anchor, own)?, token })
    }

    /// Where they are.
    pub fn urls(&self) -> &Urls {
        &self.urls
    }

    /// One of them; after the last one comes the first.
    pub(crate) fn url(&self, at: usize) -> &Url {
        &self.urls.0[at % self.urls.0.len()]
    }

    /// Whether another broker may lead if one does not answer.
    pub(crate) fn are_several(&self) -> bool {
        self.urls.count() > 1
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub(crate) async fn connect(&self, at: usize) -> io::Result<TlsStream<TcpStream>> {
        let patience = if self.are_several() { PATIENCE_WITH_ONE_OF_SEVERAL } else { PATIENCE };
        timeout(patience, self.connected(at)).await?
    }

    async fn connected(&self, at: usize) -> io::Result<TlsStream<TcpStream>> {
        let Url { host, port } = self.url(at);
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await
    }
}
