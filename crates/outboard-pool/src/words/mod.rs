//! The words of a pool: names, servers with their devices, requests, what is granted.

mod device;
mod granted;
mod name;
mod node;
mod request;
mod share;
mod size;

pub use device::{
    Capability, Condition, DEVICES_OF_A_SERVER, Device, Health, Label, MODEL_LENGTH, Server,
};
pub use granted::{Granted, LeaseNumber};
pub use name::{
    DeviceUuid, GroupName, LabelText, NodeName, OwnerName, Purpose, ServerName, Thumbprint,
};
pub use node::Node;
pub use request::{MOST_AVOIDED, MayShare, Named, Request, Servers};
pub use share::{Share, Use};
pub use size::Size;

/// What somebody gave is not what it should be; the sentence says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);
