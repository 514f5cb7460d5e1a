//! A registered server, and what is taken of its devices.

use super::class::Class;
use crate::words::{Condition, DeviceUuid, Granted, Health, Server, Use};

/// A device and what of it is free.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    pub(crate) class: Class,
    pub(crate) uuid: DeviceUuid,
    pub(crate) free_bytes: u64,
    pub(crate) free_percent: u8,
    /// Bit by bit the server's slots to which NVLink leads.
    pub(crate) links: u64,
    well: bool,
}

impl Slot {
    /// Whether nobody has anything of it: every part that somebody has is at least one percent.
    pub(crate) fn is_idle(&self) -> bool {
        self.free_percent == 100
    }

    /// Whether so much is free, were it given out at all.
    pub(crate) fn fits(&self, memory_bytes: u64, usage: Use) -> bool {
        self.free_percent >= usage.share().percent() && self.free_bytes >= memory_bytes
    }

    /// The memory that such a part takes.
    pub(crate) fn taken_by(&self, memory_bytes: u64, usage: Use) -> u64 {
        match usage {
            Use::Exclusive => self.class.memory_bytes,
            Use::Shared(_) => memory_bytes,
        }
    }
}

/// A server of the pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) server: Server,
    pub(crate) slots: Vec<Slot>,
}

impl Entry {
    /// A server of which nothing is taken; it has been checked.
    pub(crate) fn new(server: Server) -> Entry {
        let position =
            |uuid: &DeviceUuid| server.devices.iter().position(|other| other.uuid == *uuid);
        let slots = server
            .devices
            .iter()
            .map(|device| Slot {
                class: Class::of(device),
                uuid: device.uuid.clone(),
                free_bytes: device.memory_bytes,
                free_percent: 100,
                links: device
                    .nvlink
                    .iter()
                    .filter_map(position)
                    .fold(0, |links, slot| links | 1 << slot),
                well: device.health == Health::Well,
            })
            .collect();
        Entry { server, slots }
    }

    /// Whether the device is given out at all.
    pub(crate) fn gives(&self, slot: &Slot) -> bool {
        self.server.condition == Condition::Ready && slot.well
    }

    /// How many devices nobody has anything of.
    pub(crate) fn idle(&self) -> u32 {
        self.slots.iter().map(|slot| u32::from(self.gives(slot) && slot.is_idle())).sum()
    }

    /// Takes what is granted, if it is free.
    pub(crate) fn take(&mut self, granted: &Granted) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.uuid == granted.device) else {
            return false;
        };
        let whole = slot.taken_by(granted.memory_bytes, granted.usage);
        if !slot.fits(granted.memory_bytes, granted.usage) || granted.memory_bytes != whole {
            return false;
        }
        slot.free_bytes -= granted.memory_bytes;
        slot.free_percent -= granted.usage.share().percent();
        true
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, granted: &Granted) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.uuid == granted.device) {
            slot.free_bytes += granted.memory_bytes;
            slot.free_percent += granted.usage.share().percent();
        }
    }
}
