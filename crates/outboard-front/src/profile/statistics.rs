//! What a back end tells the profile of itself.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a back end has counted. It stands beside what the profile counts of the process.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Statistics {
    /// Nobody has used it.
    Unused {},
    /// Of the connection to a server.
    Connection(Box<Connection>),
    /// Of several back ends.
    Several {
        /// Each back end's own.
        servers: Vec<Statistics>,
        /// Bytes that have gone from one to another, and not through this process.
        bytes_linked: u64,
        /// Those of them that have gone through memory that the two share.
        bytes_shared: u64,
        /// Bytes that have gone from one to another through this process.
        bytes_relayed: u64,
        /// Why two of them are not linked, if two are not.
        not_linked: Option<String>,
    },
    /// Of the software device.
    SoftwareDevice {
        /// Kernels that were launched.
        launches: u64,
    },
}

/// Bytes of files that programs moved to and from memory of devices.
#[derive(Debug, Default, Serialize)]
pub struct FileBytes {
    /// Read by servers themselves.
    pub read_by_servers: u64,
    /// Read by this process.
    pub read_here: u64,
    /// Written by servers themselves.
    pub written_by_servers: u64,
    /// Written by this process.
    pub written_here: u64,
    /// Why files were this process's to read and write, and how many.
    pub reasons: BTreeMap<String, u64>,
}

impl FileBytes {
    /// Whether no file was used.
    pub(crate) fn is_nothing(&self) -> bool {
        let all =
            [self.read_by_servers, self.read_here, self.written_by_servers, self.written_here];
        all == [0; 4] && self.reasons.is_empty()
    }
}

/// A connection to a server, and what went over it.
#[derive(Debug, Serialize)]
pub struct Connection {
    /// The address, as the program was given it.
    pub server: String,
    /// The name of the first device.
    pub device: String,
    /// The addresses of the session's memory, if they were agreed on.
    pub window: Option<String>,
    /// `tcp`, `shm` and so on.
    pub transport: String,
    /// What the session might use in its place and does not, and why.
    pub unused: Option<String>,
    /// Commands that nobody waited for.
    pub posted: u64,
    /// Commands that were waited for.
    pub waited: u64,
    /// Writes to the connection.
    pub sends: u64,
    /// Bytes sent, over all connections of the session.
    pub bytes_to_device: u64,
    /// Bytes received, likewise.
    pub bytes_from_device: u64,
    /// Loads of an image that the server had.
    pub images_known: u64,
    /// Loads of an image of which something was sent.
    pub images_sent: u64,
    /// Bytes of images that were sent.
    pub image_bytes_sent: u64,
    /// Time that threads waited for answers, in seconds.
    pub seconds_waiting: f64,
    /// Time since the session began, in seconds.
    pub seconds: f64,
    /// Faults in memory that program and device share.
    pub page_faults: u64,
    /// Bytes of such memory that were sent.
    pub page_bytes_to_device: u64,
    /// Bytes of such memory that were fetched.
    pub page_bytes_from_device: u64,
    /// Bytes of messages of MPI that have gone from this server to another rank's, and not through
    /// this process.
    pub message_bytes_sent: u64,
    /// Those that have come from other ranks' servers.
    pub message_bytes_received: u64,
    /// Why the server could not call another rank's, if one could not be called.
    pub messages_not_linked: Option<String>,
}
