//! Requests: what a worker asks of its client, because only the client's process can do it.
//!
//! A request travels as a [notice](crate::notice::REQUEST). Its answer comes back on a lane
//! ([`LaneKind::Answer`](crate::lane::LaneKind)), not among the commands: the worker may be unable
//! to take commands until it has the answer.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::names::ContextId;

/// Call a function of the program: the `call` of the command that queued it (`u64`), and what
/// became of the work before it (`u32`, a `CUresult`). After an error only functions that want to
/// know are called; the others are forgotten.
pub const HOST_CALL: u32 = 1;

/// The stream has come to a copy whose bytes are read only now: send transfer (`u64`). So it is
/// after an error, too. Not answered.
pub const SEND: u32 = 2;

/// A launched graph has come to a host node: call function (`u64`, by the client's number for it).
pub const GRAPH_CALL: u32 = 16;

/// A launched graph has come to a copy from the program's memory: answer with bytes of box (`u64`,
/// by the client's number for it) from offset (`u64`) on, so many (`u32`). A box is counted row by
/// row without what lies between its rows.
pub const GRAPH_READ: u32 = 17;

/// A launched graph has come to a copy to the program's memory: bytes (the rest of the body) for
/// box (`u64`) from offset (`u64`) on.
pub const GRAPH_WRITE: u32 = 18;

/// Most bytes of the program's memory in one such request or its answer.
pub const GRAPH_PIECE: usize = 4 << 20;

/// Largest body of an answer, in bytes.
pub const MAX_ANSWER: usize = *crate::limits::CHUNK_BYTES.end();

/// What every request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// By which the answer names it; 0 if none is wanted.
    pub number: u64,
    /// What is asked: one of the constants above.
    pub kind: u32,
    /// The client's name for the context that it is about.
    pub ctx: ContextId,
    /// What belongs to the kind.
    pub body: &'a [u8],
}

impl Encode for Request<'_> {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.number);
        writer.put(&self.kind);
        writer.put(&self.ctx);
        writer.put(self.body);
    }
}

impl<'a> Decode<'a> for Request<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Request<'a>, DecodeError> {
        Ok(Request {
            number: reader.get()?,
            kind: reader.get()?,
            ctx: reader.get()?,
            body: reader.get()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode_all;

    #[test]
    fn a_request_round_trips() {
        let request = Request { number: 7, kind: HOST_CALL, ctx: ContextId(3), body: &[1, 2, 3] };
        let mut writer = Writer::new();
        writer.put(&request);
        let bytes = writer.into_vec();
        assert_eq!(decode_all::<Request<'_>>(&bytes).unwrap(), request);
        assert!(decode_all::<Request<'_>>(&bytes[..bytes.len() - 1]).is_err());
    }
}
