//! Devices that are the same to every request.

use crate::words::{Capability, Device, Request, Size};
use std::fmt;

/// What requests tell devices apart by. Those with less memory come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    pub(crate) memory_bytes: u64,
    capability: Capability,
    model: String,
}

impl Class {
    pub(crate) fn of(device: &Device) -> Class {
        Class {
            memory_bytes: device.memory_bytes,
            capability: device.capability,
            model: device.model.clone(),
        }
    }

    /// Whether the request wants this model and capability; nothing is said about memory.
    pub(crate) fn is_wanted(&self, request: &Request) -> bool {
        let has = |part: &String| {
            self.model
                .as_bytes()
                .windows(part.len())
                .any(|w| w.eq_ignore_ascii_case(part.as_bytes()))
        };
        request.capability.is_none_or(|lowest| self.capability >= lowest)
            && request.model.as_ref().is_none_or(has)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.model, Size(self.memory_bytes), self.capability)
    }
}
