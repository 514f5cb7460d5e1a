//! Why a server cannot be one of a pool.

use std::path::PathBuf;

use outboard_pool::words::Malformed;
use outboard_wire::Code;

/// Why a server cannot be one of a pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A file of keys cannot be used.
    #[error("the pool's key {path} cannot be used: {reason}", path = path.display())]
    Key {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file with the server's token at the broker cannot be used.
    #[error("--pool-token-file names {path}, which cannot be used: {reason}", path = path.display())]
    Token {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Connections to the broker cannot be encrypted as configured.
    #[error("the settings for the pool's broker cannot be used: {0}")]
    Broker(String),
    /// Anybody could pretend to be the broker.
    #[error(
        "nothing is known by which the pool's broker could be recognised: set --pool-fingerprint or --pool-ca"
    )]
    UnknownBroker,
    /// The server cannot be called so.
    #[error("`{name}` cannot be the server's name in its pool: {reason}; --pool-name gives it one")]
    Name {
        /// The name.
        name: String,
        /// What is wrong.
        reason: Malformed,
    },
}

impl PoolError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            PoolError::Key { .. } | PoolError::Token { .. } | PoolError::Broker(_) => {
                Code::FileUnusable
            }
            PoolError::Name { .. } | PoolError::UnknownBroker => Code::BadUsage,
        }
    }
}
