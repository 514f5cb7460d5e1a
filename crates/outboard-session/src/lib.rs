//! Ordering, posting, acknowledgement of commands, without sockets or clocks.
//!
//! Each side of a session is two halves that share nothing: one makes outgoing bytes, one takes
//! incoming bytes apart. Whoever owns a half decides how bytes move and which locks guard what.
//!
//! - Commands have one total order: the order in which [`client::Outgoing::push`] numbered them.
//!   The worker takes them in that order or not at all; replies may come in any order.
//! - Each side numbers what it sends and says how far it has taken over what it received. What the
//!   other side has not taken over is the unacknowledged window. A half told to retain it can send
//!   it again after the connection was cut ([`client::Outgoing::resume`]), and nothing is lost or
//!   done twice.
#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]

mod buffer;
pub mod chunks;
pub mod client;
pub mod groups;
pub mod ranges;
pub mod receipts;
pub mod retained;
pub mod server;
mod window;

pub use buffer::ReceiveBuffer;
pub use window::Batch;

use outboard_wire::DecodeError;

/// The other side broke the protocol; the session cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A frame's header makes no sense.
    #[error("malformed frame: {0}")]
    Frame(#[from] DecodeError),
    /// A frame is missing or came twice.
    #[error("a frame is out of sequence: number {found} came where {expected} was due")]
    Sequence {
        /// The number that was due.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The other side acknowledges what was never sent.
    #[error("frame {claimed} is acknowledged, and only {sent} were sent")]
    Acknowledged {
        /// The number acknowledged.
        claimed: u64,
        /// The last number sent.
        sent: u64,
    },
    /// A reply to a command that waits for none.
    #[error("a reply to command {answers}, which waits for none")]
    Unasked {
        /// The command it claims to answer.
        answers: u64,
    },
    /// A command of the link's own range is unknown.
    #[error("link command {op:#06x} is unknown")]
    LinkCommand {
        /// Its number.
        op: u16,
    },
}

/// A message does not fit into a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {len} bytes exceeds the limit of {limit} for one frame")]
pub struct TooLong {
    /// Its length in bytes.
    pub len: usize,
    /// The limit in bytes.
    pub limit: usize,
}
