//! The connection to a broker: HTTPS, kept from beat to beat.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use outboard_pool::api::{Beat, BeatAnswer, Refused};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::pool::Url;

/// How long the broker may take for a connection, or for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most of an answer that is read: one with the renewals of all leases of a server.
const LONGEST_ANSWER: usize = 8 << 20;
/// What is said of a refusal, at most.
const LONGEST_SENTENCE: usize = 300;

const PATH: &str = "/v1/beat";

/// The way to a broker.
pub(super) struct Connection {
    url: Url,
    encryption: Arc<ClientConfig>,
    authorization: Option<HeaderValue>,
    open: Option<Open>,
}

/// A connection that has been made. Its task ends with it.
struct Open {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Connection {
    /// To that broker, which is shown the token.
    pub(super) fn new(url: Url, encryption: Arc<ClientConfig>, token: Option<&str>) -> Connection {
        let bearer = |token: &str| {
            // A token has only characters that a header can have.
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        Connection { url, encryption, authorization: token.and_then(bearer), open: None }
    }

    /// Says how the server is, and what the broker answers; or why it does not.
    pub(super) async fn beat(&mut self, beat: &Beat) -> Result<BeatAnswer, String> {
        let body = serde_json::to_vec(beat).map_err(text)?;
        let answered = timeout(PATIENCE, self.post(body)).await;
        let answered = answered.unwrap_or_else(|_| {
            Err(format!("it did not answer within {} seconds", PATIENCE.as_secs()))
        });
        if answered.is_err() {
            self.open = None;
        }
        serde_json::from_slice(&answered?).map_err(|error| format!("its answer is none: {error}"))
    }

    async fn post(&mut self, body: Vec<u8>) -> Result<Bytes, String> {
        if self.open.as_ref().is_none_or(|open| open.sender.is_closed()) {
            self.open = Some(self.connect().await?);
        }
        let Some(open) = &mut self.open else { return Err("it is not connected".to_owned()) };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(PATH)
            .header(HOST, self.url.to_string())
            .header(CONTENT_TYPE, "application/json");
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(text)?;
        open.sender.ready().await.map_err(text)?;
        let answer = open.sender.send_request(request).await.map_err(text)?;
        let status = answer.status();
        let read = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
        let read = read.map_err(text)?.to_bytes();
        if status.is_success() {
            return Ok(read);
        }
        let refused = serde_json::from_slice(&read).map(|Refused { error }| error);
        let sentence = outboard_wire::plain(&refused.unwrap_or_default());
        let sentence: String = sentence.chars().take(LONGEST_SENTENCE).collect();
        Err(format!("it answers {status}: {sentence}"))
    }

    async fn connect(&self) -> Result<Open, String> {
        let name = ServerName::try_from(self.url.host.clone()).map_err(text)?;
        let stream = TcpStream::connect((&*self.url.host, self.url.port)).await.map_err(text)?;
        let connector = TlsConnector::from(Arc::clone(&self.encryption));
        let stream = connector.connect(name, stream).await.map_err(text)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(text)?;
        let task = tokio::task::spawn_local(connection).abort_handle();
        Ok(Open { sender, task })
    }
}
