//! The calls of etcd's interface that brokers make. Numbers are texts there, and keys in base64.

use super::line::{EtcdError, Line};
use ct_codecs::{Base64, Decoder, Encoder};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// A key and what it has.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// At which revision it got that.
    pub(super) revision: i64,
}

/// What must be so for a transaction to do anything.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// The key was put last at that revision; 0: there is none.
    Unchanged(String, i64),
    /// The key has this.
    Has(String, String),
}

/// What a transaction does.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The key has this from now on.
    Put(Vec<u8>, Vec<u8>),
    /// There is no such key any more.
    Remove(Vec<u8>),
    /// There is no key from the first one up to the second any more.
    Clear(Vec<u8>, Vec<u8>),
}

/// What came of a transaction.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) is_done: bool,
    /// The revision that it made.
    pub(super) revision: i64,
    /// What the key has that was to be read otherwise.
    pub(super) otherwise: Option<Entry>,
}

impl Outcome {
    /// Whether the key that was read otherwise has this.
    pub(super) fn found(&self, value: &[u8]) -> bool {
        self.otherwise.as_ref().is_some_and(|found| found.value == value)
    }
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().map_err(serde::de::Error::custom),
        Value::Number(number) => {
            number.as_i64().ok_or_else(|| serde::de::Error::custom("it is too large"))
        }
        _ => Err(serde::de::Error::custom("it is no number")),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    #[serde(deserialize_with = "number")]
    revision: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeyValue {
    key: String,
    value: String,
    #[serde(deserialize_with = "number")]
    mod_revision: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Range {
    kvs: Vec<KeyValue>,
    more: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Txn {
    header: Header,
    succeeded: bool,
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    response_range: Option<Range>,
}

fn text(bytes: &[u8]) -> Result<String, EtcdError> {
    Base64::encode_to_string(bytes).map_err(|error| EtcdError::Away(error.to_string()))
}

impl KeyValue {
    fn read(&self) -> Result<Entry, EtcdError> {
        let bytes = |text: &str| {
            Base64::decode_to_vec(text, None)
                .map_err(|error| EtcdError::Away(format!("it answers strangely: {error}")))
        };
        let (key, value) = (bytes(&self.key)?, bytes(&self.value)?);
        Ok(Entry { key, value, revision: self.mod_revision })
    }
}

impl Condition {
    fn form(&self) -> Result<Value, EtcdError> {
        Ok(match self {
            Condition::Unchanged(key, revision) => json!({
                "key": text(key.as_bytes())?, "result": "EQUAL",
                "target": "MOD", "mod_revision": revision.to_string(),
            }),
            Condition::Has(key, value) => json!({
                "key": text(key.as_bytes())?, "result": "EQUAL",
                "target": "VALUE", "value": text(value.as_bytes())?,
            }),
        })
    }
}

impl Step {
    fn form(&self) -> Result<Value, EtcdError> {
        Ok(match self {
            Step::Put(key, value) => json!({"request_put": {
                "key": text(key)?, "value": text(value)?,
            }}),
            Step::Remove(key) => json!({"request_delete_range": {"key": text(key)?}}),
            Step::Clear(from, to) => json!({"request_delete_range": {
                "key": text(from)?, "range_end": text(to)?,
            }}),
        })
    }
}

impl Line {
    /// What a key has.
    pub(super) async fn get(&mut self, key: &str) -> Result<Option<Entry>, EtcdError> {
        let range: Range = self.ask("/v3/kv/range", &json!({"key": text(key.as_bytes())?})).await?;
        range.kvs.first().map(KeyValue::read).transpose()
    }

    /// At most so many keys from the first one up to the second, and whether there are more.
    pub(super) async fn page(
        &mut self,
        (from, to): (&[u8], &[u8]),
        limit: usize,
    ) -> Result<(Vec<Entry>, bool), EtcdError> {
        let body = json!({
            "key": text(from)?, "range_end": text(to)?, "limit": limit.to_string(),
            "sort_order": "ASCEND", "sort_target": "KEY",
        });
        let range: Range = self.ask("/v3/kv/range", &body).await?;
        let entries = range.kvs.iter().map(KeyValue::read).collect::<Result<_, _>>()?;
        Ok((entries, range.more))
    }

    /// Does all of these steps if all conditions hold; reads a key otherwise.
    pub(super) async fn transact(
        &mut self,
        conditions: &[Condition],
        steps: &[Step],
        otherwise: &str,
    ) -> Result<Outcome, EtcdError> {
        let conditions: Vec<Value> =
            conditions.iter().map(Condition::form).collect::<Result<_, _>>()?;
        let steps: Vec<Value> = steps.iter().map(Step::form).collect::<Result<_, _>>()?;
        let read = json!({"request_range": {"key": text(otherwise.as_bytes())?}});
        let body = json!({"compare": conditions, "success": steps, "failure": [read]});
        let txn: Txn = self.ask("/v3/kv/txn", &body).await?;
        let ranges = txn.responses.iter().filter_map(|response| response.response_range.as_ref());
        let found = ranges.flat_map(|range| &range.kvs).next();
        Ok(Outcome {
            is_done: txn.succeeded,
            revision: txn.header.revision,
            otherwise: found.map(KeyValue::read).transpose()?,
        })
    }
}
