//! How much device memory the contexts of waiting workers take, and for how many there is room.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use outboard_control::messages::ContextMemory;

/// Unless their number is configured, workers take at most this part of a device, ...
const PART: u64 = 16;
/// ... and where less than this part of a device is free, none wait but the least.
const SCARCE: u64 = 8;

/// Measurements of workers on devices where they hold contexts, by ordinal.
#[derive(Default)]
pub(super) struct Memory(BTreeMap<u32, ContextMemory>);

impl Memory {
    /// A worker has made these contexts. Not every one measures how large they are.
    pub(super) fn told(&mut self, contexts: &[ContextMemory]) {
        for context in contexts {
            let before = self.size(context.ordinal);
            self.0.insert(
                context.ordinal,
                ContextMemory { size: context.size.or(before), ..*context },
            );
        }
    }

    fn size(&self, ordinal: u32) -> Option<u64> {
        self.0.get(&ordinal).and_then(|context| context.size)
    }

    /// Whether the size of any context is not known yet.
    pub(super) fn is_to_be_measured(&self) -> bool {
        self.0.is_empty()
    }

    /// How many workers there is room for.
    pub(super) fn room(&self, bounds: Bounds) -> usize {
        let of_one = |context: &ContextMemory| {
            if context.free < context.total / SCARCE {
                return bounds.least;
            }
            match context.size.filter(|size| bounds.chosen_here && *size > 0) {
                Some(size) => usize::try_from(context.total / PART / size).unwrap_or(usize::MAX),
                None => bounds.most,
            }
        };
        let room = self.0.values().map(of_one).min().unwrap_or(bounds.most);
        room.clamp(bounds.least, bounds.most)
    }

    /// Bytes that so many workers hold of each device, where that was measured.
    pub(super) fn held(&self, workers: usize) -> BTreeMap<u32, u64> {
        let of_one = |(ordinal, context): (&u32, &ContextMemory)| {
            Some((*ordinal, context.size?.saturating_mul(workers as u64)))
        };
        self.0.iter().filter_map(of_one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn context(free: u64, total: u64, size: Option<u64>) -> ContextMemory {
        ContextMemory { ordinal: 0, free, total, size }
    }

    #[test]
    fn room_is_a_part_of_the_device_unless_somebody_has_chosen() {
        let unasked = Bounds { least: 1, most: 16, chosen_here: true };
        let chosen = Bounds { chosen_here: false, ..unasked };
        let mut memory = Memory::default();
        assert_eq!((memory.room(unasked), memory.held(3)), (16, BTreeMap::new()));
        memory.told(&[context(79 * GIB, 80 * GIB, Some(GIB / 2))]);
        assert_eq!((memory.room(unasked), memory.room(chosen)), (10, 16));
        // A later worker that does not measure leaves the measurements as they are.
        memory.told(&[context(70 * GIB, 80 * GIB, None)]);
        assert_eq!(
            (memory.room(unasked), memory.held(3)),
            (10, BTreeMap::from([(0, 3 * GIB / 2)]))
        );
        memory.told(&[ContextMemory { ordinal: 1, ..context(7 * GIB, 8 * GIB, Some(GIB)) }]);
        assert_eq!(
            (memory.room(unasked), memory.room(chosen)),
            (1, 16),
            "the smallest device decides"
        );
    }

    #[test]
    fn where_memory_is_scarce_only_the_least_wait() {
        let bounds = Bounds { least: 2, most: 16, chosen_here: false };
        let mut memory = Memory::default();
        memory.told(&[context(GIB, 80 * GIB, None)]);
        assert_eq!(memory.room(bounds), 2);
        memory.told(&[context(11 * GIB, 80 * GIB, None)]);
        assert_eq!(memory.room(bounds), 16);
    }
}
