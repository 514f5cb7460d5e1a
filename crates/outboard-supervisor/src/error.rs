//! Why a supervisor cannot serve.

use std::io;
use std::path::{Path, PathBuf};

use outboard_wire::Code;

use super::metrics::config::MetricsError;
use super::standing::Folder;
use crate::pool::PoolError;
use outboard_auth::AuthError;

/// Why a supervisor cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// The settings for authentication or encryption cannot work.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The server cannot be one of a pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The folder that was named for notes on sessions cannot be used.
    #[error(
        "cannot note sessions in {folder:?}: {error}; `outboard serve --records` names another folder, or none"
    )]
    Records {
        /// The folder.
        folder: Folder,
        /// What the system said.
        error: io::Error,
    },
    /// A server that takes another's place would not find its sessions.
    #[error(
        "the server notes its sessions in {}, and with these settings they would be looked for {}: all would be lost",
        noted.display(), elsewhere(place.as_deref())
    )]
    OtherRecords {
        /// Where they are noted.
        noted: PathBuf,
        /// Where they would be looked for.
        place: Option<PathBuf>,
    },
    /// Hardly anything could be opened.
    #[error("with a limit of {limit} open files the server can serve nobody; it needs 64 at least")]
    FewDescriptors {
        /// The limit.
        limit: usize,
    },
    /// The runtime or the signal handlers cannot be set up.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

fn elsewhere(place: Option<&Path>) -> String {
    place.map_or_else(
        || "nowhere (`--records none`)".to_owned(),
        |place| format!("in {}", place.display()),
    )
}

impl ServeError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            ServeError::Listen { .. } => Code::CannotListen,
            ServeError::Auth(error) => error.code(),
            ServeError::Metrics(error) => error.code(),
            ServeError::Pool(error) => error.code(),
            ServeError::Start(_)
            | ServeError::FewDescriptors { .. }
            | ServeError::Records { .. }
            | ServeError::OtherRecords { .. } => Code::ServerStart,
        }
    }
}
