//! An encrypted connection to a broker that is the right one.

use crate::address::Url;
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

/// Which broker, and what it is shown.
#[derive(Clone, Debug)]
pub struct Access {
    url: Url,
    config: Arc<ClientConfig>,
    token: Option<String>,
}

impl Access {
    /// To the broker at that address that the anchor trusts, with a certificate or a token.
    ///
    /// # Errors
    ///
    /// If authorities or certificate cannot be used.
    pub fn new(
        url: Url,
        anchor: Anchor,
        own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
        token: Option<String>,
    ) -> Result<Access, SetupError> {
        Ok(Access { url, config: client_config(anchor, own)?, token })
    }

    /// Where it is.
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub(crate) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
        timeout(PATIENCE, self.connected()).await.map_err(late)?
    }

    async fn connected(&self) -> io::Result<TlsStream<TcpStream>> {
        let Url { host, port } = &self.url;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await
    }
}
