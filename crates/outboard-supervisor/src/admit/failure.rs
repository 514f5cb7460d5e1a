//! Why a connection came to nothing.

use std::io;

use outboard_wire::handshake::{HandshakeError, Refusal, RefusalCode};

/// Why a connection came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Refused(Refusal),
    /// The worker has ended without a word to the client, which is to be told this.
    #[error("{0}")]
    Lost(Refusal),
    #[error("{0}")]
    Broken(#[from] io::Error),
}

impl From<HandshakeError> for Failure {
    fn from(error: HandshakeError) -> Failure {
        Failure::Refused(Refusal::from(&error))
    }
}

pub(crate) fn refuse(code: RefusalCode, sentence: impl Into<String>) -> Failure {
    Failure::Refused(Refusal { code, sentence: sentence.into() })
}
