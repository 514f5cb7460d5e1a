//! Places in the memory that the workers of two linked servers share. This process gives them out,
//! as it alone knows all copies before either worker does; the workers say when they are free.
//!
//! Each copy has flags of its own. Copies of one [`CopyQueue`] that are under way at once use the
//! same slots, as each is over before the next one begins.

use std::collections::HashMap;
use std::sync::Arc;

use outboard_front::several::{Carried, CarriedCopy, CopyQueue, Place, Places};
use outboard_session::chunks::Cut;
use outboard_session::groups::{AREA, AREA_FLAGS, BLOCK, FLAGS, Groups};
use outboard_session::ranges::{Blocks, Ranges};

use super::peer_link::chunk;
use crate::session::{FreedPlaces, Session};

/// The places of a link.
pub(super) struct LinkPlaces {
    link: u32,
    flags: Ranges,
    slots: AllSlots,
    /// Those in use, by where their flags are: where the slots of each are, if it has some.
    taken: HashMap<u64, Option<usize>>,
    /// What the two servers say.
    freed: [Arc<FreedPlaces>; 2],
}

/// The slots of all copies.
struct AllSlots {
    room: Blocks,
    /// Those in use, by where they are.
    used: HashMap<usize, Slots>,
    /// Those of the last copy of each queue.
    last: HashMap<CopyQueue, usize>,
}

/// The slots of copies of one queue.
struct Slots {
    bytes: usize,
    copies: usize,
    queue: CopyQueue,
}

impl LinkPlaces {
    pub(super) fn new(link: u32, sessions: [&Session; 2]) -> LinkPlaces {
        LinkPlaces::of(link, sessions.map(|session| Arc::clone(&session.freed_places)))
    }

    fn of(link: u32, freed: [Arc<FreedPlaces>; 2]) -> LinkPlaces {
        let mut flags = Ranges::new(AREA_FLAGS);
        // The first are nobody's: 0 stands for none.
        flags.take(FLAGS);
        LinkPlaces { link, flags, slots: AllSlots::new(), taken: HashMap::new(), freed }
    }

    fn take_back(&mut self) {
        for at in self.freed.iter().flat_map(|freed| freed.take(self.link)) {
            let Some(slots) = self.taken.remove(&at) else { continue };
            self.flags.give_back(at as usize, FLAGS);
            if let Some(slots) = slots {
                self.slots.leave(slots);
            }
        }
    }
}

impl AllSlots {
    fn new() -> AllSlots {
        let mut room = Blocks::new(BLOCK, AREA / BLOCK);
        room.take(AREA_FLAGS, 1);
        AllSlots { room, used: HashMap::new(), last: HashMap::new() }
    }

    /// Slots for one more copy, with so many bytes.
    fn join(&mut self, queue: CopyQueue, bytes: usize) -> Option<usize> {
        if let Some(&at) = self.last.get(&queue)
            && let Some(slots) = self.used.get_mut(&at)
            && slots.bytes >= bytes
        {
            slots.copies += 1;
            return Some(at);
        }
        let at = self.room.take(bytes, usize::MAX)?;
        self.used.insert(at, Slots { bytes, copies: 1, queue });
        self.last.insert(queue, at);
        Some(at)
    }

    /// One copy fewer uses these.
    fn leave(&mut self, at: usize) {
        let Some(slots) = self.used.get_mut(&at) else { return };
        slots.copies -= 1;
        if slots.copies > 0 {
            return;
        }
        if self.last.get(&slots.queue) == Some(&at) {
            self.last.remove(&slots.queue);
        }
        self.room.give_back(at, slots.bytes);
        self.used.remove(&at);
    }
}

/// Bytes of slots that the workers use for a copy; `None` if they take none so small.
fn slot_bytes(bytes: u64) -> Option<usize> {
    let cut = Cut::new(bytes, chunk(bytes)).ok().filter(|_| bytes > 0)?;
    Some(Groups::passing(cut).staging())
}

impl Places for LinkPlaces {
    fn take(&mut self, what: Carried) -> Option<Place> {
        self.take_back();
        let slots = match what {
            Carried::Signal => None,
            Carried::Copy(CarriedCopy { bytes, queue }) => {
                Some(self.slots.join(queue, slot_bytes(bytes)?)?)
            }
        };
        let Some(flags) = self.flags.take(FLAGS) else {
            slots.into_iter().for_each(|at| self.slots.leave(at));
            return None;
        };
        self.taken.insert(flags as u64, slots);
        Some(Place { flags: flags as u64, slots: slots.unwrap_or(0) as u64 })
    }
}

#[cfg(test)]
mod tests {
    use outboard_front::several::Way;
    use outboard_wire::notice::FreePlaces;
    use outboard_wire::{ContextId, StreamId};

    use super::*;

    fn copy(stream: u64, bytes: u64) -> Carried {
        let (ctx, stream) = (ContextId(1), StreamId(stream));
        Carried::Copy(CarriedCopy { bytes, queue: CopyQueue { ctx, stream, way: Way::ToDevice } })
    }

    #[test]
    fn places_are_given_out_until_there_are_none_and_come_back() {
        let freed = [Arc::new(FreedPlaces::default()), Arc::new(FreedPlaces::default())];
        let mut places = LinkPlaces::of(3, freed.clone());
        freed.iter().for_each(|freed| freed.expect(3));
        let large = |stream| copy(stream, 256 << 20);
        // One block begins with flags.
        let all: Vec<Place> =
            (1..AREA as u64 / BLOCK as u64).map(|at| places.take(large(at)).unwrap()).collect();
        assert_eq!(places.take(large(9)), None);
        let small = places.take(copy(10, 4 << 10)).unwrap();
        let signal = places.take(Carried::Signal).unwrap();
        assert!(small.slots as usize >= AREA_FLAGS && signal.slots == 0);
        let mut flags: Vec<u64> = all.iter().chain([&small, &signal]).map(|it| it.flags).collect();
        flags.sort_unstable();
        flags.dedup();
        assert_eq!((flags.len(), flags[0]), (AREA / BLOCK + 1, FLAGS as u64));
        assert_eq!(places.take(copy(11, 0)), None);
        // Either server says so, and may say nonsense.
        let say = |at: usize, link, places: &[u64]| {
            freed[at].add(FreePlaces { link, places: places.to_vec() });
        };
        let first = all[0];
        say(0, 3, &[first.flags]);
        say(1, 3, &[first.flags, first.flags, 12_345, u64::MAX]);
        say(1, 4, &[all[1].flags]);
        assert_eq!((places.take(large(12)), places.take(large(13))), (Some(first), None));
        say(1, 3, &vec![1; AREA / FLAGS + 1]);
        assert!(freed[1].take(3).is_empty(), "there are not so many places");
        assert!(freed[1].take(4).is_empty(), "there is no such link");
    }

    #[test]
    fn without_flags_there_is_no_place() {
        let freed = [Arc::new(FreedPlaces::default()), Arc::new(FreedPlaces::default())];
        let mut places = LinkPlaces::of(1, freed.clone());
        freed[0].expect(1);
        let signals = std::iter::from_fn(|| places.take(Carried::Signal)).count();
        assert_eq!(signals, AREA_FLAGS / FLAGS - 1);
        assert_eq!(places.take(copy(1, 1)), None);
        freed[0].add(FreePlaces { link: 1, places: vec![FLAGS as u64] });
        assert!(places.take(copy(1, BLOCK as u64)).is_some(), "no slots were lost");
    }

    #[test]
    fn copies_of_one_queue_use_the_same_slots() {
        let freed = [Arc::new(FreedPlaces::default()), Arc::new(FreedPlaces::default())];
        let mut places = LinkPlaces::of(1, freed.clone());
        freed[0].expect(1);
        let large = |stream| copy(stream, 256 << 20);
        let mut one: Vec<Place> = (0..100).map(|_| places.take(large(1)).unwrap()).collect();
        assert!(one.iter().all(|place| place.slots == one[0].slots));
        let mut flags: Vec<u64> = one.iter().map(|place| place.flags).collect();
        flags.dedup();
        assert_eq!(flags.len(), one.len(), "each has flags of its own");
        let smaller = places.take(copy(1, 4 << 10)).unwrap();
        assert_eq!(smaller.slots, one[0].slots);
        let others = [2, 3].map(|stream| places.take(large(stream)).unwrap().slots);
        assert_eq!(places.take(large(4)), None);
        // The slots are in use until the last one is free.
        let last = one.pop().unwrap();
        let free = one.iter().map(|place| place.flags).collect();
        freed[0].add(FreePlaces { link: 1, places: free });
        assert_eq!(places.take(large(4)), None);
        freed[0].add(FreePlaces { link: 1, places: vec![last.flags, smaller.flags] });
        assert_eq!(places.take(large(4)).unwrap().slots, last.slots);
        assert_eq!(places.take(large(1)), None);
        assert_eq!(places.take(large(2)).unwrap().slots, others[0]);
    }

    #[test]
    fn a_larger_copy_of_a_queue_gets_larger_slots() {
        let freed = [Arc::new(FreedPlaces::default()), Arc::new(FreedPlaces::default())];
        let mut places = LinkPlaces::of(1, freed.clone());
        freed[0].expect(1);
        let small = places.take(copy(1, 4 << 10)).unwrap();
        let large = places.take(copy(1, 16 << 20)).unwrap();
        assert_ne!(small.slots, large.slots);
        // Behind it, both sizes fit there.
        assert_eq!(places.take(copy(1, 4 << 10)).unwrap().slots, large.slots);
        freed[0].add(FreePlaces { link: 1, places: vec![small.flags] });
        assert_eq!(places.take(copy(1, 16 << 20)).unwrap().slots, large.slots);
    }
}
