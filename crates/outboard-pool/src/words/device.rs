//! Servers and their devices, as servers describe them.

use super::{DeviceUuid, LabelText, Malformed, ServerName, Size};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// The most devices of a server.
pub const DEVICES_OF_A_SERVER: usize = 64;

/// The most bytes of a model's name, or of a driver's version.
pub const MODEL_LENGTH: usize = 96;

/// The most labels of a server, ...
const LABELS_OF_A_SERVER: usize = 64;

/// ... and the most bytes of all of them.
const LABELS_LENGTH: usize = 4096;

/// A CUDA compute capability, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Capability {
    /// Before the point.
    pub major: u16,
    /// Behind the point.
    pub minor: u16,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Capability {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Capability, Malformed> {
        let wrong = || Malformed(format!("`{text}` is no compute capability, such as 9.0"));
        let (major, minor) = text.split_once('.').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        Ok(Capability { major: number(major)?, minor: number(minor)? })
    }
}

/// Whether a device can be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It works.
    Well,
    /// It has failed: nobody gets it any more.
    Ill,
}

/// Whether a server can be given leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It takes new leases.
    Ready,
    /// It is to go: it keeps the leases that it has and gets no new ones.
    Draining,
    /// It has said nothing for too long: no new leases until it speaks.
    Silent,
}

/// One GPU of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What identifies it.
    pub uuid: DeviceUuid,
    /// Its model, such as `NVIDIA H100 80GB HBM3`.
    pub model: String,
    /// All of its memory, in bytes.
    pub memory_bytes: u64,
    /// Its compute capability.
    pub capability: Capability,
    /// Devices of the same server to which NVLink leads.
    pub nvlink: BTreeSet<DeviceUuid>,
    /// How busy it was lately, in percent. For people: it is too old to place by.
    pub load_percent: u8,
    /// Whether it works.
    pub health: Health,
}

/// What somebody says about a server, such as rack `r7`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Label {
    /// Such as `rack` or `zone`.
    pub key: LabelText,
    /// Such as `r7`.
    pub value: LabelText,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl FromStr for Label {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Label, Malformed> {
        let wrong = || Malformed(format!("`{text}` is no label, such as rack=r7"));
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        Ok(Label { key: key.parse()?, value: value.parse()? })
    }
}

/// A server as it registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The pool's name for it.
    pub name: ServerName,
    /// The version of its NVIDIA driver, such as `570.86.10`.
    pub driver: String,
    /// Where it stands, and what else is said of it.
    pub labels: BTreeMap<LabelText, LabelText>,
    /// Whether it takes leases.
    pub condition: Condition,
    /// Its devices.
    pub devices: Vec<Device>,
}

impl Server {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    ///
    /// If one of its devices cannot be as described; the sentence names it.
    pub fn check(&self) -> Result<(), Malformed> {
        let name = &self.name;
        let wrong = |what: String| Err(Malformed(format!("server {name}: {what}")));
        if self.devices.len() > DEVICES_OF_A_SERVER {
            return wrong(format!(
                "it has {} devices; register at most {DEVICES_OF_A_SERVER}",
                self.devices.len()
            ));
        }
        if !is_plain(&self.driver) {
            return wrong(format!(
                "its driver's version needs 1 to {MODEL_LENGTH} printable ASCII characters"
            ));
        }
        let lengths =
            self.labels.iter().map(|(key, value)| key.as_str().len() + value.as_str().len());
        let length: usize = lengths.sum();
        if self.labels.len() > LABELS_OF_A_SERVER || length > LABELS_LENGTH {
            return wrong(format!(
                "it has {} labels of {length} bytes; say at most {LABELS_OF_A_SERVER} of \
                 {LABELS_LENGTH} bytes",
                self.labels.len()
            ));
        }
        let uuids: BTreeSet<&DeviceUuid> = self.devices.iter().map(|device| &device.uuid).collect();
        if uuids.len() < self.devices.len() {
            return wrong("two of its devices have the same UUID; give each its own".into());
        }
        for device in &self.devices {
            let uuid = &device.uuid;
            if !is_plain(&device.model) {
                return wrong(format!(
                    "the model of {uuid} needs 1 to {MODEL_LENGTH} printable ASCII characters"
                ));
            }
            if device.memory_bytes == 0 || device.memory_bytes > 1 << 50 {
                return wrong(format!(
                    "{uuid} cannot have {} of memory; say it in bytes",
                    Size(device.memory_bytes)
                ));
            }
            if device.load_percent > 100 {
                return wrong(format!("the load of {uuid} must be 0 to 100 percent"));
            }
            if let Some(other) = device.nvlink.iter().find(|other| !uuids.contains(other)) {
                return wrong(format!(
                    "{uuid} has {other} as NVLink neighbour, which is not a device of the server"
                ));
            }
        }
        Ok(())
    }
}

fn is_plain(text: &str) -> bool {
    (1..=MODEL_LENGTH).contains(&text.len())
        && text.bytes().all(|c| c == b' ' || c.is_ascii_graphic())
}
