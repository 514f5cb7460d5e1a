//! What client and server say of a session that outlives its connections.

use core::time::Duration;

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::record;

/// The kind of these parts: [`Terms`] in the hello and the welcome of a session, [`Point`] in those
/// of every later connection.
pub const RESUME: Kind = Kind(2);

/// In a session's hello: the client can go on after a lost connection. In its welcome: the server
/// lets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long the client tries; how long the server keeps the session.
    pub grace: Duration,
}

/// How far one side has come on a connection that goes on where an earlier one stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Point {
    /// Which lane it is, counted from 0; 0 for the connection that carries commands.
    pub lane: u32,
    /// Grows with each attempt of the client, so that one that was overtaken does no harm. 0 for a
    /// lane that is new.
    pub attempt: u64,
    /// How many numbered frames have been received.
    pub received: u64,
}

impl Encode for Terms {
    fn encode(&self, writer: &mut Writer) {
        writer.u64(u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX));
    }
}

impl<'a> Decode<'a> for Terms {
    fn decode(reader: &mut Reader<'a>) -> Result<Terms, DecodeError> {
        Ok(Terms { grace: Duration::from_millis(reader.u64()?) })
    }
}

record!(Point { lane, attempt, received });

#[cfg(test)]
mod tests {
    use super::super::Extensions;
    use super::*;

    #[test]
    fn terms_and_points_travel() {
        let mut more = Extensions::default();
        let terms = Terms { grace: Duration::from_secs(60) };
        more.set(RESUME, &terms);
        assert_eq!(more.get(RESUME), Ok(Some(terms)));
        let point = Point { lane: 3, attempt: u64::MAX, received: 1 << 40 };
        more.set(RESUME, &point);
        assert_eq!(more.get(RESUME), Ok(Some(point)));
        more.set(RESUME, &7_u32);
        assert!(more.get::<Point>(RESUME).is_err() && more.get::<Terms>(RESUME).is_err());
    }
}
