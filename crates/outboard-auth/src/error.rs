//! Why what shows who somebody is cannot be used.

use std::path::PathBuf;

use outboard_wire::Code;

/// Why the settings for authentication cannot work.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// It would be open to everybody.
    #[error(
        "{address} can be reached from other machines, and there is nothing by which a client could show who it is: whoever can connect \
         could run code on the GPU"
    )]
    Open {
        /// The address at which it was to listen.
        address: std::net::SocketAddr,
    },
    /// Virtual machines can reach it, and it could not know its clients.
    #[error(
        "virtual machines can reach this server, and there is nothing by which a client could show who it is: whoever can connect could run \
         code on the GPU"
    )]
    OpenToGuests,
    /// A file or folder cannot be used.
    #[error("{what} {path} cannot be used: {reason}", path = path.display())]
    File {
        /// What it is.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Only one of a pair is named.
    #[error("--tls-cert and --tls-key belong together, and only {given} is set")]
    Half {
        /// The one that is.
        given: &'static str,
    },
    /// TLS is asked for, and there is no certificate.
    #[error(
        "connections are to be encrypted, and there is neither a certificate nor a folder to keep one in"
    )]
    NoCertificate,
}

impl AuthError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            AuthError::Open { .. } | AuthError::OpenToGuests => Code::OpenToAll,
            AuthError::Half { .. } => Code::BadUsage,
            AuthError::File { .. } | AuthError::NoCertificate => Code::FileUnusable,
        }
    }

    /// About a file or folder.
    pub fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
        reason: impl std::fmt::Display,
    ) -> AuthError {
        AuthError::File { what, path: path.into(), reason: reason.to_string() }
    }
}
