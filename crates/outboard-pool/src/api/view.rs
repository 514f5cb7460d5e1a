//! What somebody sees of a pool.

use super::Told;
use crate::state::Quota;
use crate::words::{
    Capability, Condition, DeviceUuid, Granted, GroupName, Health, LabelText, LeaseNumber,
    OwnerName, Purpose, ServerName, Use,
};
use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All of it, or a page: of each list a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// The broker's release.
    pub release: String,
    /// What its placement prefers.
    pub policy: String,
    /// The servers with their devices.
    pub servers: Vec<ServerView>,
    /// Who has what.
    pub leases: Vec<LeaseView>,
    /// Who waits, the first first.
    pub queue: Vec<TicketView>,
    /// Who has a lease, waits, or has a quota of its own.
    pub owners: Vec<OwnerView>,
    /// After what the next page goes on, if there is one. Brokers of release 0.1.0 tell all at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Told>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerView {
    /// Its name.
    pub name: ServerName,
    /// Where clients reach it.
    pub address: String,
    /// Its release.
    pub release: String,
    /// The version of its NVIDIA driver.
    pub driver: String,
    /// What is said of it.
    pub labels: BTreeMap<LabelText, LabelText>,
    /// Whether it gets leases.
    pub condition: Condition,
    /// Why it gets none although it is well, if so.
    pub because: Option<String>,
    /// When it was heard of last, since the broker started.
    pub heard: Option<Timestamp>,
    /// Its devices.
    pub devices: Vec<DeviceView>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its UUID.
    pub uuid: DeviceUuid,
    /// Its model.
    pub model: String,
    /// Its compute capability.
    pub capability: Capability,
    /// Its memory.
    pub memory_bytes: u64,
    /// What of it no lease has.
    pub free_bytes: u64,
    /// The multiprocessors that no lease has, in percent.
    pub free_percent: u8,
    /// How busy it was lately, in percent.
    pub load_percent: u8,
    /// Whether it works.
    pub health: Health,
    /// The leases that have some of it.
    pub leases: Vec<LeaseNumber>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Its number.
    pub number: LeaseNumber,
    /// Whose it is.
    pub owner: OwnerName,
    /// The owner's group.
    pub group: GroupName,
    /// Who asked for it.
    pub asked_by: OwnerName,
    /// What it is for, if the asker has said.
    pub purpose: Option<Purpose>,
    /// Since when.
    pub since: Timestamp,
    /// When it ends unless it is renewed.
    pub expires: Timestamp,
    /// Until when it is renewed.
    pub renewable_until: Timestamp,
    /// The sessions that use it.
    pub sessions: u32,
    /// The memory that they have allocated.
    pub used_bytes: u64,
    /// Why it is over, if its servers have not all said yet that they know.
    pub over: Option<String>,
    /// Its devices.
    pub devices: Vec<Granted>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketView {
    /// Its number.
    pub ticket: u64,
    /// Its place.
    pub place: u32,
    /// Who is to get it.
    pub owner: OwnerName,
    /// Who asks.
    pub asked_by: OwnerName,
    /// What it is for, if the asker has said.
    pub purpose: Option<Purpose>,
    /// Since when.
    pub since: Timestamp,
    /// How many devices.
    pub devices: u32,
    /// How much memory of each.
    pub memory_bytes: u64,
    /// Which part of each.
    pub usage: Use,
    /// What it waits for.
    pub because: String,
}

/// An owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerView {
    /// Its name.
    pub owner: OwnerName,
    /// Its group.
    pub group: GroupName,
    /// How many devices and parts of devices it has.
    pub devices: u64,
    /// How much memory.
    pub memory_bytes: u64,
    /// How many of its requests wait.
    pub waiting: u32,
    /// The most that it may have.
    pub quota: Quota,
}

/// What an owner has had on a day of a model. A part of a device counts by its share of
/// multiprocessors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// The day, in UTC.
    pub day: Date,
    /// The owner.
    pub owner: OwnerName,
    /// The owner's group then.
    pub group: GroupName,
    /// The model of the devices.
    pub model: String,
    /// Devices times seconds.
    pub device_seconds: u64,
    /// Memory in GiB times seconds.
    pub gib_seconds: u64,
}

/// What is known of one lease, in sentences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The lease.
    pub number: LeaseNumber,
    /// One after the other.
    pub sentences: Vec<String>,
}
