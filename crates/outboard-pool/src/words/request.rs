//! What somebody asks for.

use super::{
    Capability, GroupName, Label, MODEL_LENGTH, Malformed, OwnerName, Size, Thumbprint, Use,
};
use serde::{Deserialize, Serialize};

/// The most devices of one request.
const MOST_DEVICES: u32 = 4096;

/// On which servers the devices may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Who may use the lease.
    pub may_share: MayShare,
    /// Higher comes first. Placement does not look at it.
    pub priority: u8,
    /// How long to wait for what is not free, in seconds.
    pub wait_seconds: u32,
}

impl Request {
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
        match &self.model {
            Some(model) if !(1..=MODEL_LENGTH).contains(&model.len()) => Err(Malformed(format!(
                "a part of a model's name needs 1 to {MODEL_LENGTH} characters"
            ))),
            _ => Ok(()),
        }
    }
}
