//! What a back end tells the profile of itself.

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
    Several { servers: Vec<Statistics> },
    /// Of the software device.
    SoftwareDevice { launches: u64 },
}

/// A connection to a server, and what went over it.
#[derive(Debug, Serialize)]
pub struct Connection {
    pub server: String,
    pub device: String,
    /// The addresses of the session's memory, if they were agreed on.
    pub window: Option<String>,
    pub transport: String,
    pub posted: u64,
    pub waited: u64,
    pub sends: u64,
    pub bytes_to_device: u64,
    pub bytes_from_device: u64,
    pub images_known: u64,
    pub images_sent: u64,
    pub image_bytes_sent: u64,
    pub seconds_waiting: f64,
    pub seconds: f64,
    pub page_faults: u64,
    pub page_bytes_to_device: u64,
    pub page_bytes_from_device: u64,
}
