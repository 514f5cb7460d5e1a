//! Places in the memory that the workers of two linked servers share. This process gives them out,
//! as it alone knows all copies before either worker does; the workers say when they are free.

use std::collections::HashMap;
use std::sync::Arc;

use outboard_front::several::{Carried, Place, Places};
use outboard_session::chunks::Cut;
use outboard_session::groups::{AREA, AREA_FLAGS, BLOCK, FLAGS, Groups};
use outboard_session::ranges::{Blocks, Ranges};

use super::peer_link::chunk;
use crate::session::{FreedPlaces, Session};

/// The places of a link.
pub(super) struct LinkPlaces {
    link: u32,
    flags: Ranges,
    slots: Blocks,
    /// Those in use, by where their flags are: where the slots of each are, and their bytes.
    taken: HashMap<u64, (usize, usize)>,
    /// What the two servers say.
    freed: [Arc<FreedPlaces>; 2],
}

impl LinkPlaces {
    pub(super) fn new(link: u32, sessions: [&Session; 2]) -> LinkPlaces {
        LinkPlaces::of(link, sessions.map(|session| Arc::clone(&session.freed_places)))
    }

    fn of(link: u32, freed: [Arc<FreedPlaces>; 2]) -> LinkPlaces {
        let (mut flags, mut slots) = (Ranges::new(AREA_FLAGS), Blocks::new(BLOCK, AREA / BLOCK));
        // The first are nobody's: 0 stands for none.
        flags.take(FLAGS);
        slots.take(AREA_FLAGS, 1);
        LinkPlaces { link, flags, slots, taken: HashMap::new(), freed }
    }

    fn take_back(&mut self) {
        for at in self.freed.iter().flat_map(|freed| freed.take(self.link)) {
            let Some((slots, bytes)) = self.taken.remove(&at) else { continue };
            self.flags.give_back(at as usize, FLAGS);
            if bytes > 0 {
                self.slots.give_back(slots, bytes);
            }
        }
    }
}

/// Bytes of slots that the workers use for it.
fn slot_bytes(what: Carried) -> Option<usize> {
    match what {
        Carried::Signal => Some(0),
        Carried::Copy(0) => None,
        Carried::Copy(bytes) => {
            Some(Groups::passing(Cut::new(bytes, chunk(bytes)).ok()?).staging())
        }
    }
}

impl Places for LinkPlaces {
    fn take(&mut self, what: Carried) -> Option<Place> {
        self.take_back();
        let bytes = slot_bytes(what)?;
        let slots = if bytes > 0 { self.slots.take(bytes, usize::MAX)? } else { 0 };
        let Some(flags) = self.flags.take(FLAGS) else {
            if bytes > 0 {
                self.slots.give_back(slots, bytes);
            }
            return None;
        };
        self.taken.insert(flags as u64, (slots, bytes));
        Some(Place { flags: flags as u64, slots: slots as u64 })
    }
}

#[cfg(test)]
mod tests {
    use outboard_wire::notice::FreePlaces;

    use super::*;

    #[test]
    fn places_are_given_out_until_there_are_none_and_come_back() {
        let freed = [Arc::new(FreedPlaces::default()), Arc::new(FreedPlaces::default())];
        let mut places = LinkPlaces::of(3, freed.clone());
        freed.iter().for_each(|freed| freed.expect(3));
        let large = Carried::Copy(256 << 20);
        // One block begins with flags.
        let all: Vec<Place> = (1..AREA / BLOCK).map(|_| places.take(large).unwrap()).collect();
        assert_eq!(places.take(large), None);
        let small = places.take(Carried::Copy(4 << 10)).unwrap();
        let signal = places.take(Carried::Signal).unwrap();
        assert!(small.slots as usize >= AREA_FLAGS && signal.slots == 0);
        let mut flags: Vec<u64> = all.iter().chain([&small, &signal]).map(|it| it.flags).collect();
        flags.sort_unstable();
        flags.dedup();
        assert_eq!((flags.len(), flags[0]), (AREA / BLOCK + 1, FLAGS as u64));
        assert_eq!(places.take(Carried::Copy(0)), None);
        // Either server says so, and may say nonsense.
        let say = |at: usize, link, places: &[u64]| {
            freed[at].add(FreePlaces { link, places: places.to_vec() });
        };
        let first = all[0];
        say(0, 3, &[first.flags]);
        say(1, 3, &[first.flags, first.flags, 12_345, u64::MAX]);
        say(1, 4, &[all[1].flags]);
        assert_eq!((places.take(large), places.take(large)), (Some(first), None));
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
        assert_eq!(places.take(Carried::Copy(1)), None);
        freed[0].add(FreePlaces { link: 1, places: vec![FLAGS as u64] });
        assert!(places.take(Carried::Copy(BLOCK as u64)).is_some(), "no slots were lost");
    }
}
