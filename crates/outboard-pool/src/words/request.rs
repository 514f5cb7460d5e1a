//! What somebody asks for.

use super::{
    Capability, DeviceUuid, GroupName, Label, MODEL_LENGTH, Malformed, OwnerName, ServerName, Size,
    Thumbprint, Use,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most devices of one request.
const MOST_DEVICES: u32 = 4096;

/// The most servers that one request avoids.
pub const MOST_AVOIDED: usize = 64;

/// On which servers the devices may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Servers {
    /// On any: the policy prefers some.
    Any,
    /// All on one.
    Same,
    /// Each on another one.
    Distinct,
}

/// Who may use a lease besides the process that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MayShare {
    /// No other process.
    Nobody,
    /// Every process that proves the key to which the lease is bound.
    SameKey,
    /// Also processes that prove one of these keys.
    Keys(Vec<Thumbprint>),
}

/// A device that somebody has chosen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Its server.
    pub server: ServerName,
    /// Its UUID.
    pub device: DeviceUuid,
}

/// A request for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Who asks.
    pub owner: OwnerName,
    /// The owner's group.
    pub group: GroupName,
    /// How many devices.
    pub devices: u32,
    /// How much memory of each, in bytes. An exclusive device has at least that much.
    pub memory_bytes: u64,
    /// Which part of each device.
    pub usage: Use,
    /// A part of the model's name, in upper or lower case, such as `h100`.
    pub model: Option<String>,
    /// The lowest compute capability that will do.
    pub capability: Option<Capability>,
    /// On which servers.
    pub servers: Servers,
    /// Servers with this label are taken first.
    pub near: Option<Label>,
    /// These devices and no others, chosen by a scheduler; none are named otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Named>,
    /// Not on these servers: whoever asks could not reach them. At most [`MOST_AVOIDED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<ServerName>,
    /// Who may use the lease.
    pub may_share: MayShare,
    /// Higher comes first. Placement does not look at it.
    pub priority: u8,
    /// How long to wait for what is not free, in seconds.
    pub wait_seconds: u32,
}

impl Request {
    /// A request for so many devices, exclusively, on any servers, which does not wait.
    #[must_use]
    pub fn new(owner: OwnerName, group: GroupName, devices: u32) -> Request {
        Request {
            owner,
            group,
            devices,
            memory_bytes: 0,
            usage: Use::Exclusive,
            model: None,
            capability: None,
            servers: Servers::Any,
            near: None,
            only: Vec::new(),
            avoid: Vec::new(),
            may_share: MayShare::Nobody,
            priority: 0,
            wait_seconds: 0,
        }
    }

    /// Checks what the types cannot say.
    ///
    /// # Errors
    ///
    /// If nothing could ever be granted for it.
    pub fn check(&self) -> Result<(), Malformed> {
        if !(1..=MOST_DEVICES).contains(&self.devices) {
            return Err(Malformed(format!(
                "ask for 1 to {MOST_DEVICES} devices, not for {}",
                self.devices
            )));
        }
        if self.memory_bytes == 0 && self.usage != Use::Exclusive {
            return Err(Malformed(
                "say how much memory of each device is needed, or ask for it exclusively".into(),
            ));
        }
        if self.memory_bytes > 1 << 50 {
            return Err(Malformed(format!(
                "{} of memory is more than any device has; say it in bytes",
                Size(self.memory_bytes)
            )));
        }
        if self.avoid.len() > MOST_AVOIDED {
            return Err(Malformed(format!(
                "{} servers are to be avoided; name at most {MOST_AVOIDED}",
                self.avoid.len()
            )));
        }
        self.check_named()?;
        match &self.model {
            Some(model) if !(1..=MODEL_LENGTH).contains(&model.len()) => Err(Malformed(format!(
                "a part of a model's name needs 1 to {MODEL_LENGTH} characters"
            ))),
            _ => Ok(()),
        }
    }

    fn check_named(&self) -> Result<(), Malformed> {
        if self.only.is_empty() {
            return Ok(());
        }
        let has_wishes = self.model.is_some()
            || self.capability.is_some()
            || self.near.is_some()
            || !self.avoid.is_empty()
            || self.servers != Servers::Any;
        let wrong = if self.only.len() != self.devices as usize {
            format!("{} devices are asked for, and {} are named", self.devices, self.only.len())
        } else if self.only.iter().collect::<BTreeSet<_>>().len() < self.only.len() {
            "a device is named twice".into()
        } else if has_wishes {
            "name devices, or say how they are to be, not both".into()
        } else if self.wait_seconds > 0 {
            "devices that are named are not waited for: ask again, or name others".into()
        } else {
            return Ok(());
        };
        Err(Malformed(wrong))
    }
}
