//! Why a broker does not answer as was hoped for.

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The broker is away.
    #[error("the broker at {url} cannot be reached: {reason}")]
    Away {
        /// Where it should be.
        url: String,
        /// Why it is not.
        reason: String,
    },
    /// Somebody else may answer in its place.
    #[error("the connection to the broker at {url} cannot be trusted: {reason}")]
    NotTrusted {
        /// Where the broker should be.
        url: String,
        /// Why.
        reason: String,
    },
    /// It has not answered in time.
    #[error("the broker at {url} does not answer in time")]
    Silent {
        /// Where it should be.
        url: String,
    },
    /// It says no.
    #[error("{sentence}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// Why.
        sentence: String,
    },
    /// It says something else than a broker should.
    #[error("what is at {url} does not answer as a broker: {reason}")]
    Strange {
        /// Where it is.
        url: String,
        /// What is strange.
        reason: String,
    },
}

impl AskError {
    /// Whether it may be otherwise a little later.
    pub fn may_pass(&self) -> bool {
        match self {
            AskError::Away { .. } | AskError::Silent { .. } => true,
            AskError::Refused { status, .. } => matches!(status, 429 | 503),
            AskError::NotTrusted { .. } | AskError::Strange { .. } => false,
        }
    }
}
