//! What hellos and welcomes have grown since 1.4: named parts that a side which does not know them
//! skips.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The kinds of part. A number is never used again for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u16);

/// The most parts that one message may have.
const MOST_PARTS: usize = 32;

/// The parts of one message, each at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions(Vec<(Kind, Vec<u8>)>);

impl Extensions {
    /// Adds a part, or puts it in the place of the one of that kind.
    pub fn set(&mut self, kind: Kind, part: &impl Encode) {
        let mut writer = Writer::with_capacity(32);
        writer.put(part);
        self.remove(kind);
        self.0.push((kind, writer.into_vec()));
    }

    /// Takes the part of a kind out.
    pub fn remove(&mut self, kind: Kind) {
        self.0.retain(|(other, _)| *other != kind);
    }

    /// The part of a kind, if it is there. What a newer version has appended to it is skipped.
    ///
    /// # Errors
    /// As [`Decode::decode`] of the type, if the part is there and malformed.
    pub fn get<T: for<'a> Decode<'a>>(&self, kind: Kind) -> Result<Option<T>, DecodeError> {
        self.part(kind).map(|bytes| T::decode(&mut Reader::new(bytes))).transpose()
    }

    /// The bytes of that part, if it is there.
    pub fn part(&self, kind: Kind) -> Option<&[u8]> {
        self.0.iter().find(|(other, _)| *other == kind).map(|(_, bytes)| &**bytes)
    }
}

impl Encode for Extensions {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.0.len() as u32);
        for (kind, bytes) in &self.0 {
            writer.u16(kind.0);
            writer.bytes(bytes);
        }
    }
}

impl<'a> Decode<'a> for Extensions {
    fn decode(reader: &mut Reader<'a>) -> Result<Extensions, DecodeError> {
        let count = reader.u32()?;
        if count as usize > MOST_PARTS {
            return Err(DecodeError::Invalid { what: "number of extensions", value: count.into() });
        }
        let mut parts: Vec<(Kind, Vec<u8>)> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (kind, bytes) = (Kind(reader.u16()?), reader.bytes()?.to_vec());
            if parts.iter().any(|(other, _)| *other == kind) {
                return Err(DecodeError::Invalid {
                    what: "extension that is there twice",
                    value: kind.0.into(),
                });
            }
            parts.push((kind, bytes));
        }
        Ok(Extensions(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_the_wire(sent: &Extensions) -> Result<Extensions, DecodeError> {
        let mut writer = Writer::with_capacity(64);
        writer.put(sent);
        let bytes = writer.into_vec();
        Extensions::decode(&mut Reader::new(&bytes))
    }

    #[test]
    fn parts_are_found_by_kind_and_strange_ones_are_kept_apart() {
        let mut sent = Extensions::default();
        sent.set(Kind(7), &"seven".to_owned());
        sent.set(Kind(900), &1_u32);
        sent.set(Kind(7), &"again".to_owned());
        let got = through_the_wire(&sent).unwrap();
        assert_eq!(got, sent);
        assert_eq!(got.get::<String>(Kind(7)), Ok(Some("again".to_owned())));
        assert_eq!(got.get::<String>(Kind(8)), Ok(None));
        assert!(got.get::<u64>(Kind(900)).is_err(), "a part that is too short");
    }

    #[test]
    fn one_that_is_there_twice_is_refused() {
        let twice = Extensions(vec![(Kind(1), vec![]), (Kind(1), vec![])]);
        assert!(through_the_wire(&twice).is_err());
        let many = Extensions((0..40).map(|kind| (Kind(kind), vec![])).collect());
        assert!(through_the_wire(&many).is_err());
    }
}
