//! One question to an etcd, one answer: whichever member gives it.

use super::address::{Cluster, Member};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long a member may take; then another one is asked.
const PATIENCE: Duration = Duration::from_millis(700);
/// The most bytes of an answer.
const LONGEST: usize = 64 << 20;

/// Why etcd has not answered as was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No member has answered in time.
    #[error("etcd does not answer: {0}")]
    Away(String),
    /// It says no.
    #[error("etcd refuses: {sentence}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// Why.
        sentence: String,
    },
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to one of the members, which is kept for the next question.
#[derive(Debug)]
pub(super) struct Line {
    cluster: Cluster,
    /// The member that is asked.
    at: usize,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Line {
    pub(super) fn new(cluster: Cluster) -> Line {
        Line { cluster, at: 0, open: None }
    }

    /// What the keys of the pool begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.cluster.prefix
    }

    /// Asks one member after the other until one answers. A question that changes something may
    /// have done so although it was asked in vain, or may do so later.
    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, EtcdError> {
        let body = serde_json::to_vec(body).map_err(|error| EtcdError::Away(error.to_string()))?;
        let body = Bytes::from(body);
        let mut last = String::new();
        // A connection that was kept may have ended meanwhile, which says nothing of its member.
        let attempts = self.cluster.members.len() + usize::from(self.open.is_some());
        for _ in 0..attempts {
            let was_kept = self.open.is_some();
            let answered = timeout(PATIENCE, self.exchange(path, body.clone())).await;
            match answered {
                Ok(Ok((status, text))) if status.is_success() => {
                    return serde_json::from_slice(&text).map_err(|error| {
                        EtcdError::Away(format!("it answers strangely: {error}"))
                    });
                }
                // It has no leader, or too much to do or no room: another member may have.
                Ok(Ok((status, text))) if may_pass(status) => last = said(status, &text),
                Ok(Ok((status, text))) => {
                    return Err(EtcdError::Refused {
                        status: status.as_u16(),
                        sentence: said(status, &text),
                    });
                }
                Ok(Err(error)) => {
                    last = error.to_string();
                    if was_kept {
                        self.open = None;
                        continue;
                    }
                }
                Err(_) => last = "it takes too long".to_owned(),
            }
            last = format!("{}: {last}", self.member());
            self.open = None;
            self.at = (self.at + 1) % self.cluster.members.len();
        }
        Err(EtcdError::Away(last))
    }

    fn member(&self) -> &Member {
        &self.cluster.members[self.at]
    }

    async fn exchange(&mut self, path: &str, body: Bytes) -> io::Result<(StatusCode, Bytes)> {
        let sender = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        let sender = self.open.insert(sender);
        let request = Request::post(path)
            .header(HOST, "etcd")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        sender.ready().await.map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        Ok((status, body.map_err(io::Error::other)?.to_bytes()))
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let Member { host, port } = self.member();
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.cluster.tls {
            None => Box::new(stream),
            Some(settings) => {
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(Arc::clone(settings)).connect(name, stream).await?)
            }
        };
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // How it ends, the question says that was asked.
        tokio::spawn(async { drop(driver.await) });
        Ok(sender)
    }
}

fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

fn said(status: StatusCode, text: &[u8]) -> String {
    let failure = serde_json::from_slice::<Failure>(text).map(|failure| failure.message);
    match failure {
        Ok(error) if !error.is_empty() => outboard_wire::plain(&error).chars().take(300).collect(),
        _ => format!("status {status}"),
    }
}
