//! Why a client has no connection.

use std::io;
use std::sync::Arc;

use outboard_wire::Code;
use outboard_wire::handshake::{HandshakeError, Refusal};

use super::security::SecurityError;

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address cannot be understood.
    #[error("{0}")]
    Address(io::Error),
    /// Nothing answers at the address.
    #[error("cannot reach a server at {address}: {error}; is `outboard serve` running there?")]
    Unreachable {
        /// The address tried.
        address: String,
        /// What the transport said.
        error: io::Error,
    },
    /// Something answered, and fell silent or hung up.
    #[error("{address} broke off the handshake: {error}; is it an Outboard server?")]
    BrokenOff {
        /// The address.
        address: String,
        /// What the transport said.
        error: io::Error,
    },
    /// The two sides do not understand each other.
    #[error("{address}: {error}")]
    Handshake {
        /// The address.
        address: String,
        /// Why.
        error: HandshakeError,
    },
    /// The server declined.
    #[error("the server at {address} refused: {refusal}")]
    Refused {
        /// The address.
        address: String,
        /// Its reason.
        refusal: Refusal,
    },
    /// Somebody declined in the clear, where the client wanted to encrypt.
    #[error(
        "nothing came about with {address}: before the connection was encrypted, the server, or somebody on the way (that is not known), said: {refusal}"
    )]
    RefusedInTheClear {
        /// The address.
        address: String,
        /// What was said.
        refusal: Refusal,
    },
    /// The server has no room yet, and the program has waited for as long as it may.
    #[error("the server at {address} has no room yet: {sentence} (place {place} in the queue)")]
    Queued {
        /// The address.
        address: String,
        /// The place in the queue.
        place: u32,
        /// What is waited for.
        sentence: String,
    },
    /// The transport that was asked for cannot be had.
    #[error("OUTBOARD_TRANSPORT asks for {wanted}, but {reason}")]
    Transport {
        /// What was asked for.
        wanted: &'static str,
        /// Why it cannot be had.
        reason: String,
    },
    /// Something went wrong with the memory that this process and the server were to share.
    #[error("no memory can be shared with the server at {address}: {error}")]
    Memory {
        /// The address.
        address: String,
        /// What went wrong.
        error: io::Error,
    },
    /// The server is elsewhere, and nothing is known by which to recognise it.
    #[error(
        "the server at {address} is on another machine, and nothing is known by which it could be recognised: set OUTBOARD_TLS_FINGERPRINT to what \
         `outboard token fingerprint` prints there, or OUTBOARD_TLS_CA; or, on a network that you trust, OUTBOARD_TLS=off"
    )]
    NothingToTrust {
        /// The address.
        address: String,
    },
    /// The token would be sent to any process that listens there.
    #[error(
        "the token would go in the clear to whoever listens at {address}: set OUTBOARD_TLS_FINGERPRINT to what `outboard token fingerprint` prints on \
         the server's machine, or OUTBOARD_TLS_CA; or, where only the server can listen, OUTBOARD_TLS=off"
    )]
    TokenInTheClear {
        /// The address.
        address: String,
    },
    /// The lease would be shown in the clear.
    #[error(
        "{address}: the lease would be shown in the clear; set OUTBOARD_TLS_FINGERPRINT or OUTBOARD_TLS_CA so that the connection is encrypted, \
         or OUTBOARD_TLS=off if that is meant"
    )]
    LeaseInTheClear {
        /// The address.
        address: String,
    },
    /// The peer is not the intended server, or TLS refused the client's certificate.
    #[error("{address}: the connection cannot be trusted: {error}")]
    NotTrusted {
        /// The address.
        address: String,
        /// Why.
        error: String,
    },
    /// The server is another one than those whose fingerprint and token the client has.
    #[error("there is no login for {address}; the fingerprint is that of {of}")]
    NoLogin {
        /// The address.
        address: String,
        /// The servers whose fingerprint it is.
        of: String,
    },
    /// The server does not encrypt.
    #[error("{address} does not encrypt connections, and this client asks for that")]
    NotEncrypted {
        /// The address.
        address: String,
    },
    /// The client's own settings.
    #[error(transparent)]
    Security(SecurityError),
    /// This process lacks something: threads, descriptors.
    #[error("cannot start the connection's thread: {0}")]
    Local(io::Error),
}

impl ConnectError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            ConnectError::Address(_) => Code::BadAddress,
            ConnectError::Unreachable { address, error } => unreachable(address, error),
            ConnectError::BrokenOff { .. } => Code::NotOutboard,
            ConnectError::Handshake { error, .. } => error.code(),
            ConnectError::Queued { .. } => Code::InQueue,
            ConnectError::Refused { refusal, .. }
            | ConnectError::RefusedInTheClear { refusal, .. } => refusal.error(),
            ConnectError::Transport { .. } => Code::NoTransport,
            ConnectError::Memory { .. } => Code::NoSharedMemory,
            ConnectError::NothingToTrust { .. }
            | ConnectError::NoLogin { .. }
            | ConnectError::TokenInTheClear { .. }
            | ConnectError::LeaseInTheClear { .. } => Code::NothingToTrust,
            ConnectError::NotTrusted { .. } => Code::ServerNotTrusted,
            ConnectError::NotEncrypted { .. } => Code::NotEncrypted,
            ConnectError::Security(_) => Code::BadCredentials,
            ConnectError::Local(_) => Code::ClientResources,
        }
    }
}

/// Why nothing answers at an address.
pub fn unreachable(address: &str, error: &io::Error) -> Code {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Code::NothingListens,
        io::ErrorKind::NotFound if address.starts_with("unix:") => Code::NoSocket,
        io::ErrorKind::NotFound => Code::UnknownHost,
        io::ErrorKind::PermissionDenied if address.starts_with("unix:") => Code::SocketDenied,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Code::NoAnswer,
        _ => Code::Unreachable,
    }
}

/// Why a post or call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The connection is gone, for this and all later commands.
    #[error("the connection to the server is lost: {0}")]
    Lost(Arc<str>),
    /// The command does not fit into a frame. Nothing was sent.
    #[error(transparent)]
    TooLong(#[from] outboard_session::TooLong),
    /// The transfer cannot be cut as asked. Nothing was sent.
    #[error(transparent)]
    Transfer(outboard_session::chunks::ChunkError),
    /// The worker gave a download up; the command that announced it knows why.
    #[error("the server gave the transfer up")]
    Cancelled,
}
