//! How a pool has been used.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How much was used, in pieces of equal length, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryView {
    /// When the first piece begins.
    pub since: Timestamp,
    /// The length of a piece.
    pub step_seconds: u32,
    /// What was; nothing where the broker did not run.
    pub points: Vec<Option<Point>>,
}

/// A pool at some time, or on average over a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Devices that work, of servers that speak.
    pub devices: f32,
    /// How many of them leases have; a part of a device counts by its share.
    pub leased: f32,
    /// How busy these devices are, on average.
    pub load_percent: f32,
    /// The most requests that waited.
    pub waiting: u32,
}
