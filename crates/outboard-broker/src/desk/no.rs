//! Why somebody gets nothing.

use outboard_pool::words::Malformed;

/// What kind of a refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It makes no sense.
    Malformed,
    /// Others may do it.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It cannot be had.
    Unavailable,
    /// Too many ask.
    Busy,
    /// The broker is about to stand by or to end.
    Away,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct No {
    /// What kind it is.
    pub kind: Kind,
    /// What is wrong, and what would help.
    pub sentence: String,
}

impl No {
    /// A refusal of that kind.
    pub fn new(kind: Kind, sentence: impl Into<String>) -> No {
        No { kind, sentence: sentence.into() }
    }

    /// There is no such ticket.
    pub(crate) fn ticket(number: u64) -> No {
        No::new(
            Kind::NotFound,
            format!(
                "no request waits with ticket {number}: it has left the queue, or the broker was \
                 started anew; ask again"
            ),
        )
    }
}

impl From<Malformed> for No {
    fn from(Malformed(sentence): Malformed) -> No {
        No { kind: Kind::Malformed, sentence }
    }
}
