//! A worker's sign of life.

use core::time::Duration;

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The kind of [`Beats`], in a welcome to a session.
pub const BEATS: Kind = Kind(6);

/// The worker says something on the connection that carries commands at least this often, if only
/// an [acknowledgement](crate::frame::ReplyKind::Acknowledge), however busy its device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beats {
    /// The time between two.
    pub period: Duration,
}

impl Beats {
    /// No worker promises so little as to speak less often than this.
    pub const LONGEST: Duration = Duration::from_secs(60);
}

impl Encode for Beats {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(u32::try_from(self.period.as_millis()).unwrap_or(u32::MAX));
    }
}

impl<'a> Decode<'a> for Beats {
    fn decode(reader: &mut Reader<'a>) -> Result<Beats, DecodeError> {
        let milliseconds = reader.u32()?;
        let period = Duration::from_millis(milliseconds.into());
        if period > Beats::LONGEST {
            return Err(DecodeError::Invalid {
                what: "time between signs of life",
                value: milliseconds.into(),
            });
        }
        Ok(Beats { period })
    }
}
