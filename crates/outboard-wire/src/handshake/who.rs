//! How a client learns who it is to a server.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// In a probe's hello, [`Who`]: a question. In the welcome that answers it, [`You`].
pub const WHO: Kind = Kind(16);

/// Who am I? The welcome that answers describes no devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who;

/// The client, as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct You {
    /// Whom its sessions are counted for.
    pub owner: String,
    /// From when on its token is refused, in seconds since 1970; `None` for a token that does not
    /// expire, and for a client that has shown none.
    pub expires: Option<u64>,
}

impl Encode for Who {
    fn encode(&self, _writer: &mut Writer) {}
}

impl<'a> Decode<'a> for Who {
    fn decode(_reader: &mut Reader<'a>) -> Result<Who, DecodeError> {
        Ok(Who)
    }
}

impl Encode for You {
    fn encode(&self, writer: &mut Writer) {
        writer.str(&self.owner);
        writer.put(&self.expires);
    }
}

impl<'a> Decode<'a> for You {
    fn decode(reader: &mut Reader<'a>) -> Result<You, DecodeError> {
        Ok(You { owner: reader.get()?, expires: reader.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Extensions;

    #[test]
    fn an_answer_arrives_as_it_was_sent() {
        for expires in [None, Some(1_800_000_000)] {
            let you = You { owner: "alice".to_owned(), expires };
            let mut more = Extensions::default();
            more.set(WHO, &you);
            assert_eq!(more.get(WHO), Ok(Some(you)));
        }
    }
}
