//! Spans: what took how long in a session, for traces. Made by workers while somebody wants them,
//! gathered by the supervisor.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outboard_wire::{Decode, DecodeError, Encode, Reader, Writer};

/// Something that began and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its number in the trace; not 0.
    pub id: u64,
    /// What it is part of.
    pub parent: u64,
    /// What was done, such as the message's name.
    pub name: String,
    /// Start, in nanoseconds since 1970.
    pub begun: u64,
    /// End, in nanoseconds since 1970.
    pub ended: u64,
    /// Names and values, as OpenTelemetry has them.
    pub attributes: Vec<(String, Value)>,
}

/// What is said of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string attribute.
    Text(String),
    /// An integer attribute.
    Number(u64),
}

/// Nanoseconds since 1970.
pub fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Encode for Span {
    fn encode(&self, writer: &mut Writer) {
        writer.u64(self.id);
        writer.u64(self.parent);
        writer.str(&self.name);
        writer.u64(self.begun);
        writer.u64(self.ended);
        writer.u32(self.attributes.len() as u32);
        for (name, value) in &self.attributes {
            writer.str(name);
            match value {
                Value::Text(text) => {
                    writer.u8(0);
                    writer.str(text);
                }
                Value::Number(number) => {
                    writer.u8(1);
                    writer.u64(*number);
                }
            }
        }
    }
}

/// Attributes of one span.
const MOST_ATTRIBUTES: u32 = 32;

impl<'a> Decode<'a> for Span {
    fn decode(reader: &mut Reader<'a>) -> Result<Span, DecodeError> {
        let (id, parent, name) = (reader.u64()?, reader.u64()?, reader.get()?);
        let (begun, ended, count) = (reader.u64()?, reader.u64()?, reader.u32()?);
        if count > MOST_ATTRIBUTES {
            return Err(DecodeError::Invalid { what: "number of attributes", value: count.into() });
        }
        let mut attributes = Vec::new();
        for _ in 0..count {
            let name = reader.get()?;
            let value = match reader.u8()? {
                0 => Value::Text(reader.get()?),
                1 => Value::Number(reader.u64()?),
                value => {
                    return Err(DecodeError::Invalid {
                        what: "kind of attribute",
                        value: value.into(),
                    });
                }
            };
            attributes.push((name, value));
        }
        Ok(Span { id, parent, name, begun, ended, attributes })
    }
}
