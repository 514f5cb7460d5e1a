//! The connection to a broker, kept from beat to beat.

use std::time::Duration;

use jiff::Timestamp;
use outboard_broker_client::{Access, AskError, Broker, Connection, Method, Patience};
use outboard_pool::api::{Beat, BeatAnswer};
use outboard_pool::lease::{SigningKey, prove};

/// How long the broker may take for an answer.
const PATIENCE: Patience =
    Patience { with_one: Duration::from_secs(5), with_one_of_several: Duration::from_secs(2) };
/// The most of an answer that is read: one with the renewals of all leases of a server.
const LONGEST_ANSWER: usize = 8 << 20;
/// What is said of a failure, at most, in characters.
const LONGEST_SENTENCE: usize = 300;

const PATH: &str = "/v1/beat";

/// The way to a broker.
pub(super) struct Line {
    broker: Broker,
    /// How many brokers the pool has.
    brokers: usize,
    open: Option<Connection>,
    /// The server's key; without a folder for it there is none.
    key: Option<SigningKey>,
}

impl Line {
    pub(super) fn new(access: Access, key: Option<SigningKey>) -> Line {
        let brokers = access.urls().count();
        let broker = Broker::new(access).reading_at_most(LONGEST_ANSWER);
        Line { broker: broker.answering_within(PATIENCE), brokers, open: None, key }
    }

    /// Says how the server is, and what the broker answers that leads; or why none does.
    pub(super) async fn beat(&mut self, beat: &Beat) -> Result<BeatAnswer, String> {
        let mut answered = self.beat_one(beat).await;
        for _ in 1..self.brokers {
            if answered.is_ok() {
                break;
            }
            answered = self.beat_one(beat).await;
        }
        answered
    }

    /// The same, of the broker that has answered last or, after a failure, of another one.
    async fn beat_one(&mut self, beat: &Beat) -> Result<BeatAnswer, String> {
        let answered = self.ask(beat).await.map_err(|error| sentence(&error));
        if answered.is_err() {
            self.open = None;
        }
        answered
    }

    async fn ask(&mut self, beat: &Beat) -> Result<BeatAnswer, AskError> {
        let connection = match self.open.take() {
            Some(open) => open,
            None => self.broker.open().await?,
        };
        let connection = self.open.insert(connection);
        // All of a beat has a form in JSON.
        let body = serde_json::to_vec(beat).unwrap_or_default();
        let key = self.key.as_ref();
        let proof = key.and_then(|key| prove(&body, key, Timestamp::now()));
        connection.ask_proven(Method::POST, PATH, body, proof.as_deref()).await
    }
}

/// A broker may say anything.
fn sentence(error: &AskError) -> String {
    outboard_wire::plain(&error.to_string()).chars().take(LONGEST_SENTENCE).collect()
}
