//! How the chunks of a transfer, which suit the link, are put together to groups, which suit the
//! device, and where both lie in staging memory.
//!
//! A chunk is what one lane, or one thread, carries at a time: small, so that all work on what the
//! device needs next. A group is what the device copies at a time: large, since each costs it a few
//! microseconds beside the copy itself, and of each stream only so many operations fit.
//!
//! Staging memory of a transfer is [`FLAGS`] bytes of flags, 32 bits each, and slots for groups
//! behind them. Both sides of a link compute the same layout.

use std::ops::Range;

use outboard_wire::limits::WINDOW;

use crate::chunks::Cut;

/// Bytes of flags in front of a transfer's slots.
pub const FLAGS: usize = 4 << 10;

/// Groups are not larger, in bytes, unless a chunk is.
const LARGEST: u64 = 2 << 20;
/// A transfer on lanes has about so many groups, if they are not too large or smaller than a chunk.
const PARTS: u64 = 8;
/// Groups of a transfer that waits behind others are not larger, in bytes, unless a chunk is.
const LARGEST_WAITING: u64 = 8 << 20;
/// Groups of a transfer between two workers that share memory are not larger, in bytes, unless a
/// chunk is.
const LARGEST_PASSING: u64 = 4 << 20;

/// What a group costs beside its copy where both sides share memory, as bytes that would be copied
/// meanwhile, to and from the device. One that waits for bytes takes some 20 microseconds to see
/// that they are there.
const COSTS: (u64, u64) = (1 << 20, 256 << 10);

/// Bytes of a transfer's slots where both sides share memory: what fits into a processor's cache is
/// copied faster.
pub const SHARED: usize = 16 << 20;

/// Shared memory is made known to the device in blocks of so many bytes, each of which holds the
/// staging memory of the largest transfer.
pub const BLOCK: usize = SHARED + (2 << 20);

/// Bytes of the memory that the workers of two servers share, in whole blocks.
pub const AREA: usize = 4 * BLOCK;

/// The first so many bytes of it are for flags alone, so that whoever begins to use some finds none
/// set: [`FLAGS`] bytes for each transfer or signal, but the first ones, which are nobody's. Slots
/// lie behind.
pub const AREA_FLAGS: usize = 4 << 20;

/// A flag of a slot. Each is set to the number of groups that have used the slot so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// Its bytes are there.
    Full(usize),
    /// Its bytes are not needed any more.
    Free(usize),
    /// The stream has come to the transfer: 1.
    Reached,
    /// Not 0: the transfer has come to nothing, and what the other flags say means nothing either.
    /// [`NOT_QUEUED`] or [`BROKE_OFF`].
    Failed,
    /// How many of the two workers that use the memory have done with it.
    Ended,
}

/// The last word for flags where both sides share memory. The client writes another number there
/// for each transfer, so that a worker which looks late does not take a later transfer in the same
/// memory for the one that it looks after.
pub const USE: usize = FLAGS / 4 - 1;

/// Nothing of the transfer was queued: its staging memory is free.
pub const NOT_QUEUED: u32 = 1;
/// The device may go on to use the transfer's staging memory.
pub const BROKE_OFF: u32 = 2;

/// The groups of one transfer.
#[derive(Debug, Clone, Copy)]
pub struct Groups {
    cut: Cut,
    /// Chunks of a group.
    per: u32,
    /// Groups that have a slot each.
    slots: u32,
}

impl Groups {
    /// The groups of a transfer that is cut this way.
    pub fn new(cut: Cut) -> Groups {
        Groups::of_about(cut, cut.len() / PARTS, LARGEST)
    }

    /// The groups of a transfer that waits behind others in its stream: few, since those keep the
    /// link and the device busy meanwhile.
    pub fn waiting(cut: Cut) -> Groups {
        let room = cut.staging().max(WINDOW) + LARGEST as usize;
        [LARGEST_WAITING, LARGEST_WAITING / 2]
            .map(|largest| Groups::of_about(cut, largest, largest))
            .into_iter()
            .find(|groups| groups.staging() < room)
            .unwrap_or_else(|| Groups::new(cut))
    }

    /// The groups of one that goes through shared memory, where threads fill slots faster than the
    /// device empties them, or empty them faster than it fills them. The first group, which one
    /// side waits for, costs the less the smaller it is, and all of them cost the less the fewer
    /// there are: together least where a group is as large as the square root says. The slots are
    /// fewer, of at most [`SHARED`] bytes unless chunks are large.
    pub fn shared(cut: Cut, to_device: bool) -> Groups {
        let cost = if to_device { COSTS.0 } else { COSTS.1 };
        Groups::of_about(cut, cut.len().saturating_mul(cost).isqrt(), LARGEST).in_cache()
    }

    /// The groups of one between two workers that share memory: one device fills slots while the
    /// other one empties them, and no thread moves a byte.
    pub fn passing(cut: Cut) -> Groups {
        let best = cut.len().saturating_mul(COSTS.1).isqrt();
        Groups::of_about(cut, best, LARGEST_PASSING).in_cache()
    }

    /// With fewer slots, of at most [`SHARED`] bytes unless chunks are large.
    fn in_cache(self) -> Groups {
        let group = self.per as usize * self.cut.chunk() as usize;
        Groups { slots: self.slots.min((SHARED / group).max(2) as u32), ..self }
    }

    /// Groups of about so many bytes, as far as there may be such.
    fn of_about(cut: Cut, bytes: u64, largest: u64) -> Groups {
        let chunk = u64::from(cut.chunk());
        let window = cut.window().max(1);
        let wanted = bytes.clamp(chunk, largest.max(chunk)) / chunk;
        // The staging memory must hold at least two, one for the link and one for the device,
        // unless it holds all of the transfer.
        let most = if cut.count() > window { window / 2 } else { window };
        let per = (wanted as u32).clamp(1, most.max(1));
        Groups { cut, per, slots: window.div_ceil(per) }
    }

    /// How the transfer is cut.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Bytes of the slots: up to a group more than the window, which need not be whole groups.
    pub fn staging(&self) -> usize {
        self.slots as usize * self.per as usize * self.cut.chunk() as usize
    }

    /// How many groups there are.
    pub fn count(&self) -> u32 {
        self.cut.count().div_ceil(self.per)
    }

    /// How many operations a stream holds for it: the copy of each group, and what tells of its
    /// slot.
    pub fn operations(&self) -> usize {
        2 * self.count() as usize + 1
    }

    /// How many have a slot at the same time.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// A flag's number among the 32-bit words of the flags.
    pub fn flag(&self, flag: Flag) -> usize {
        let slots = self.slots as usize;
        match flag {
            Flag::Full(slot) => slot,
            Flag::Free(slot) => slots + slot,
            Flag::Reached => 2 * slots,
            Flag::Failed => 2 * slots + 1,
            Flag::Ended => 2 * slots + 2,
        }
    }

    /// Whether the flags fit into the room that they have.
    pub fn fit(&self) -> bool {
        self.flag(Flag::Ended) < USE
    }

    /// A group's slot, and how many groups have used the slot up to and with it.
    pub fn slot_and_round(&self, group: u32) -> (usize, u32) {
        ((group % self.slots) as usize, group / self.slots + 1)
    }

    /// The group of a chunk.
    pub fn of(&self, chunk: u32) -> u32 {
        chunk / self.per
    }

    /// A group's chunks.
    pub fn chunks(&self, group: u32) -> Range<u32> {
        let start = group * self.per;
        start..(start + self.per).min(self.cut.count())
    }

    /// Where a group's bytes begin in the transfer, and how many there are.
    pub fn bytes(&self, group: u32) -> (u64, usize) {
        let chunks = self.chunks(group);
        let (start, last) = (self.cut.offset(chunks.start), chunks.end - 1);
        (start, (self.cut.offset(last) + u64::from(self.cut.len_of(last)) - start) as usize)
    }

    /// Where a chunk lies among the slots.
    pub fn chunk_at(&self, chunk: u32) -> usize {
        let (slot, _) = self.slot_and_round(self.of(chunk));
        (slot as u32 * self.per + chunk % self.per) as usize * self.cut.chunk() as usize
    }

    /// Where a group lies among the slots.
    pub fn group_at(&self, group: u32) -> usize {
        self.chunk_at(self.chunks(group).start)
    }

    /// Chunks below this may come once `done` groups are done with.
    pub fn granted(&self, done: u32) -> u32 {
        (u64::from(done) + u64::from(self.slots))
            .saturating_mul(self.per.into())
            .min(self.cut.count().into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Groups cover the transfer once, what has a place at the same time does not overlap, and
        /// all places lie within the staging memory.
        #[test]
        fn groups_cover_the_transfer(len in 1u64..(200 << 20), chunk in (64u32 << 10)..(8 << 20), waits: bool) {
            let cut = Cut::new(len, chunk).unwrap();
            let groups = if waits { Groups::waiting(cut) } else { Groups::new(cut) };
            prop_assert!(groups.count() <= Groups::new(cut).count());
            let mut end = 0;
            for group in 0..groups.count() {
                let (start, bytes) = groups.bytes(group);
                prop_assert_eq!(start, end);
                end = start + bytes as u64;
                prop_assert!(groups.group_at(group) + bytes <= groups.staging());
                prop_assert!(groups.staging() < cut.staging().max(WINDOW) + (2 << 20));
                for chunk in groups.chunks(group) {
                    prop_assert_eq!(groups.of(chunk), group);
                    let within = (cut.offset(chunk) - start) as usize;
                    prop_assert_eq!(groups.chunk_at(chunk), groups.group_at(group) + within);
                }
                let (slot, round) = groups.slot_and_round(group);
                prop_assert!(slot < groups.slots() as usize && round >= 1);
                prop_assert_eq!(groups.group_at(group), groups.group_at(slot as u32));
            }
            prop_assert_eq!(end, len);
            prop_assert!(groups.fit() && (groups.slots() >= 2 || groups.count() == 1));
            prop_assert!(groups.flag(Flag::Full(groups.slots() as usize - 1)) < groups.flag(Flag::Free(0)));
            for shared in [Groups::shared(cut, true), Groups::shared(cut, false), Groups::passing(cut)] {
                prop_assert!(shared.staging() <= SHARED.max(2 * shared.bytes(0).1) && FLAGS + shared.staging() <= BLOCK);
                prop_assert!(shared.fit() && (shared.slots() >= 2 || shared.count() == 1));
            }
            prop_assert!(groups.granted(0) >= cut.window(), "the client counts on its window");
            prop_assert_eq!(groups.granted(groups.count()), cut.count());
        }
    }

    #[test]
    fn groups_are_large_and_transfers_have_several() {
        let of = |len: u64, chunk: u32| {
            let groups = Groups::new(Cut::new(len, chunk).unwrap());
            (groups.count(), groups.bytes(0).1)
        };
        assert_eq!(of(128 << 20, 256 << 10), (64, 2 << 20));
        assert_eq!(of(1 << 20, 128 << 10), (8, 128 << 10));
        assert_eq!(of(4 << 20, 256 << 10), (8, 512 << 10));
        assert_eq!(of(100 << 10, 128 << 10), (1, 100 << 10));
        assert_eq!(of(128 << 20, 8 << 20), (16, 8 << 20));
    }

    #[test]
    fn transfers_that_wait_have_few() {
        let of = |len: u64, chunk: u32| {
            let groups = Groups::waiting(Cut::new(len, chunk).unwrap());
            (groups.count(), groups.operations())
        };
        assert_eq!(of(1 << 20, 128 << 10), (1, 3));
        assert_eq!(of(64 << 20, 2 << 20), (8, 17));
        assert_eq!(of(128 << 20, 256 << 10), (16, 33));
    }

    #[test]
    fn through_shared_memory_groups_grow_with_the_transfer_but_slower() {
        let of = |len: u64, chunk: u32, to_device| {
            let groups = Groups::shared(Cut::new(len, chunk).unwrap(), to_device);
            (groups.count(), groups.bytes(0).1, groups.slots())
        };
        assert_eq!(of(256 << 10, 128 << 10, true), (1, 256 << 10, 1));
        assert_eq!(of(1 << 20, 128 << 10, true), (1, 1 << 20, 1));
        assert_eq!(of(1 << 20, 128 << 10, false), (2, 512 << 10, 2));
        assert_eq!(of(4 << 20, 256 << 10, true), (2, 2 << 20, 2));
        assert_eq!(of(4 << 20, 256 << 10, false), (4, 1 << 20, 4));
        assert_eq!(of(128 << 20, 256 << 10, true), (64, 2 << 20, 8));
        assert_eq!(of(128 << 20, 256 << 10, false), (64, 2 << 20, 8));
    }

    #[test]
    fn between_workers_groups_are_larger_still() {
        let of = |len: u64, chunk: u32| {
            let groups = Groups::passing(Cut::new(len, chunk).unwrap());
            (groups.count(), groups.bytes(0).1, groups.slots())
        };
        assert_eq!(of(4 << 10, 64 << 10), (1, 4 << 10, 1));
        assert_eq!(of(1 << 20, 64 << 10), (2, 512 << 10, 2));
        assert_eq!(of(16 << 20, 1 << 20), (8, 2 << 20, 8));
        assert_eq!(of(256 << 20, 1 << 20), (64, 4 << 20, 4));
    }
}
