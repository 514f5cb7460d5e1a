//! One question, one answer.

use crate::connect::Access;
use crate::error::AskError;
use crate::turns::Turns;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use outboard_pool::api::{PROOF_HEADER, PoolView, Refused, UsageTold, UsageView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

pub use hyper::Method;

/// How long an answer may take.
const PATIENCE: Patience =
    Patience { with_one: Duration::from_secs(20), with_one_of_several: Duration::from_secs(3) };
/// How long a broker may be asked to wait before that.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long several brokers are asked in turn, until one leads.
const FAILOVER: Duration = Duration::from_secs(8);
/// The pause after none of them has.
const PAUSE: Duration = Duration::from_millis(200);
/// The most bytes of an answer, unless there is another limit. A broker of release 0.1.0 tells all
/// of the pool at once: as many servers as may be, each with as many devices and labels.
const LONGEST: usize = 256 << 20;

/// The most pages of a pool: many times as many as the largest one has.
const MOST_PAGES: usize = 4096;

/// How long a broker may take for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// If the pool has one broker.
    pub with_one: Duration,
    /// If the pool has several: another one may lead.
    pub with_one_of_several: Duration,
}

/// A broker, or several of one pool, of which one leads.
#[derive(Clone, Debug)]
pub struct Broker {
    access: Access,
    turns: Arc<Mutex<Turns>>,
    patience: Patience,
    /// The most bytes of an answer.
    longest: usize,
}

impl Broker {
    /// The broker behind that access.
    pub fn new(access: Access) -> Broker {
        let turns = Arc::new(Mutex::new(Turns::of(access.urls().count())));
        Broker { access, turns, patience: PATIENCE, longest: LONGEST }
    }

    /// The same, of whose answers no more than so many bytes are read.
    #[must_use]
    pub fn reading_at_most(self, bytes: usize) -> Broker {
        Broker { longest: bytes, ..self }
    }

    /// The same, for whose answers is waited that long.
    #[must_use]
    pub fn answering_within(self, patience: Patience) -> Broker {
        Broker { patience, ..self }
    }

    /// Asks, with a body in JSON or none, and reads the answer.
    ///
    /// # Errors
    ///
    /// If there is none, or it is a refusal.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, AskError> {
        let bytes = self.bytes(method, path, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.strange(&error))
    }

    /// All of the pool, page after page. A broker of release 0.1.0 tells all of it in one.
    ///
    /// # Errors
    ///
    /// As [`Broker::ask`], or if there are too many pages.
    pub async fn pool(&self) -> Result<PoolView, AskError> {
        let page = async |path: &str| self.ask::<PoolView>(Method::GET, path, None::<&()>).await;
        let mut pool = page("/v1/pool").await?;
        for _ in 1..MOST_PAGES {
            let Some(told) = &pool.next else { return Ok(pool) };
            let next = page(&format!("/v1/pool?after={told}")).await?;
            pool.append(next);
        }
        Err(self.strange(&format!("it tells the pool in more than {MOST_PAGES} pages")))
    }

    /// All that owners have had, page after page. A broker of release 0.1.0 tells all of it in one,
    /// whatever it is asked for.
    ///
    /// # Errors
    ///
    /// As [`Broker::ask`], or if there are too many pages.
    pub async fn usage(&self) -> Result<Vec<UsageView>, AskError> {
        let page =
            async |path: &str| self.ask::<Vec<UsageView>>(Method::GET, path, None::<&()>).await;
        let mut usage = page("/v1/usage").await?;
        for _ in 1..MOST_PAGES {
            let Some(last) = usage.last() else { return Ok(usage) };
            let next = page(&format!("/v1/usage?after={}", UsageTold::from(last))).await?;
            let place = |used: &UsageView| (used.day, used.owner.clone(), used.group.clone());
            if next.first().is_none_or(|first| place(first) <= place(last)) {
                return Ok(usage);
            }
            usage.extend(next);
        }
        Err(self.strange(&format!("it tells what owners have had in more than {MOST_PAGES} pages")))
    }

    /// The same for an answer that is text.
    ///
    /// # Errors
    ///
    /// As [`Broker::ask`].
    pub async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Bytes, AskError> {
        self.bytes_proven(method, path, self.written(body)?, None).await
    }

    /// The same for a body that is written already, with a server's proof.
    pub(crate) async fn bytes_proven(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        proof: Option<&str>,
    ) -> Result<Bytes, AskError> {
        let begun = Instant::now();
        loop {
            let exchange = self.exchange(method.clone(), path, body.clone(), proof);
            let answered = timeout(self.patience(path), exchange).await;
            let answered = answered.map_err(|_| self.silent());
            match answered.flatten() {
                Err(error) if self.may_be_another(&error) && begun.elapsed() < FAILOVER => {
                    if self.turn_to_another(&error) {
                        sleep(PAUSE).await;
                    }
                }
                answer => return answer,
            }
        }
    }

    fn patience(&self, path: &str) -> Duration {
        let waits = if path.contains("wait_ms=") { LONGEST_WAIT } else { Duration::ZERO };
        match self.access.are_several() {
            true => self.patience.with_one_of_several + waits,
            false => self.patience.with_one,
        }
    }

    /// Whether another broker of the pool may answer.
    fn may_be_another(&self, error: &AskError) -> bool {
        let is_elsewhere = match error {
            AskError::Away { .. } | AskError::Silent { .. } => true,
            AskError::Refused { status, .. } => *status == 503,
            AskError::NotTrusted { .. } | AskError::Strange { .. } => false,
        };
        is_elsewhere && self.access.are_several()
    }

    /// Has another one asked from now on, after that error of the one that was; whether all have
    /// been asked in vain by now.
    fn turn_to_another(&self, error: &AskError) -> bool {
        self.turns().next(matches!(error, AskError::Silent { .. }), Instant::now())
    }

    fn at(&self) -> usize {
        self.turns().at()
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self, body: Option<&impl Serialize>) -> Result<Vec<u8>, AskError> {
        let written = body.map(serde_json::to_vec).transpose();
        written.map(Option::unwrap_or_default).map_err(|error| self.strange(&error))
    }

    fn silent(&self) -> AskError {
        AskError::Silent { url: self.access.url(self.at()).to_string() }
    }

    fn away(&self, reason: &dyn std::fmt::Display) -> AskError {
        AskError::Away { url: self.access.url(self.at()).to_string(), reason: reason.to_string() }
    }

    fn strange(&self, reason: &dyn std::fmt::Display) -> AskError {
        AskError::Strange {
            url: self.access.url(self.at()).to_string(),
            reason: reason.to_string(),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        proof: Option<&str>,
    ) -> Result<Bytes, AskError> {
        self.connect().await?.exchange(method, path, body, proof).await
    }

    /// A connection for several questions, one after the other. If the pool has several brokers,
    /// to one of them; after a failure, the next one is to another.
    ///
    /// # Errors
    ///
    /// If the broker is away, or another one.
    pub async fn open(&self) -> Result<Connection, AskError> {
        self.connect().await.inspect_err(|error| self.leave(error))
    }

    /// Turns to another one if that may answer.
    fn leave(&self, error: &AskError) {
        if self.may_be_another(error) {
            self.turn_to_another(error);
        }
    }

    async fn connect(&self) -> Result<Connection, AskError> {
        let connected = self.access.connect(self.at()).await;
        let stream = connected.map_err(|error| self.no_connection(&error))?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.away(&error))?;
        // How it ends, the question says that was asked.
        let driver = Box::pin(async { drop(driver.await) });
        Ok(Connection { broker: self.clone(), sender, driver })
    }

    fn no_connection(&self, error: &io::Error) -> AskError {
        if error.kind() == io::ErrorKind::TimedOut {
            return self.silent();
        }
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(wrong)) => {
                let reason = match wrong {
                    // What this client found itself is a sentence.
                    rustls::CertificateError::Other(found) => found.0.to_string(),
                    wrong => wrong.to_string(),
                };
                AskError::NotTrusted { url: self.access.url(self.at()).to_string(), reason }
            }
            Some(error) => self.strange(error),
            None => self.away(error),
        }
    }

    async fn read(&self, response: Response<hyper::body::Incoming>) -> Result<Bytes, AskError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), self.longest).collect().await;
        // A broker that ends may end within an answer.
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => self.strange(&error),
            false => self.away(&error),
        })?;
        let body = body.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        let refused: Result<Refused, _> = serde_json::from_slice(&body);
        match refused {
            Ok(refused) => {
                Err(AskError::Refused { status: status.as_u16(), sentence: refused.error })
            }
            Err(_) => Err(self.strange(&format!("it answers with status {status}"))),
        }
    }
}

/// A connection to a broker.
pub struct Connection {
    broker: Broker,
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Connection {
    /// As [`Broker::ask`].
    ///
    /// # Errors
    ///
    /// As there. If the broker is away, the connection is of no use any more.
    pub async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, AskError> {
        let body = self.broker.written(body)?;
        self.ask_proven(method, path, body, None).await
    }

    /// The same with a body that is written already, and a server's proof of its key.
    ///
    /// # Errors
    ///
    /// As [`Connection::ask`].
    pub async fn ask_proven<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        proof: Option<&str>,
    ) -> Result<T, AskError> {
        let broker = self.broker.clone();
        let bytes = timeout(broker.patience(path), self.exchange(method, path, body, proof)).await;
        let bytes = bytes
            .map_err(|_| broker.silent())
            .flatten()
            .inspect_err(|error| broker.leave(error))?;
        serde_json::from_slice(&bytes).map_err(|error| broker.strange(&error))
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        proof: Option<&str>,
    ) -> Result<Bytes, AskError> {
        let Connection { broker, sender, driver } = self;
        // Then the driver is through.
        if sender.is_closed() {
            return Err(broker.away(&"it has closed the connection"));
        }
        let mut request = Request::builder().method(method).uri(path).header(HOST, "broker");
        if let Some(token) = broker.access.token() {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(proof) = proof {
            request = request.header(PROOF_HEADER, proof);
        }
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| broker.strange(&error))?;
        let answered = async {
            sender.ready().await.map_err(|error| broker.away(&error))?;
            let response = sender.send_request(request).await;
            broker.read(response.map_err(|error| broker.away(&error))?).await
        };
        // The connection does its work beside, and may end first.
        let mut answered = std::pin::pin!(answered);
        tokio::select! {
            answer = &mut answered => answer,
            () = driver => answered.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use outboard_transport::tls::{Anchor, Fingerprint};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// What comes of an answer after which the broker is gone.
    async fn asked(answer: &'static str) -> Result<Vec<u32>, AskError> {
        let pinned = Anchor::Pinned(Fingerprint([0; 32]));
        let access = Access::new("pool1".parse().unwrap(), pinned, None, None).unwrap();
        let (near, mut far) = duplex(4096);
        tokio::spawn(async move {
            let mut question = [0; 1024];
            assert!(far.read(&mut question).await.unwrap() > 0);
            far.write_all(answer.as_bytes()).await.unwrap();
        });
        let (sender, driver) = http1::handshake(TokioIo::new(near)).await.unwrap();
        let driver = Box::pin(async { drop(driver.await) });
        let broker = Broker::new(access).reading_at_most(10);
        let mut connection = Connection { broker, sender, driver };
        connection.ask(Method::GET, "/v1/pool", None::<&()>).await
    }

    #[tokio::test]
    async fn a_broker_that_ends_within_an_answer_is_away() {
        let whole = asked("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[1,2]").await;
        assert_eq!(whole.unwrap(), [1, 2]);
        for cut in ["HTTP/1.1 2", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[1"] {
            let error = asked(cut).await.unwrap_err();
            assert!(error.may_pass(), "{error}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_none() {
        let error = asked("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n[1,2,3,4,5]").await;
        assert!(matches!(error, Err(AskError::Strange { .. })), "{error:?}");
    }
}
