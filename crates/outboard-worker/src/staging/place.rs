//! The place of one copy or one signal in memory that this worker shares with a peer.
//!
//! It is the same on both servers, which know it before either has begun: the client has said to
//! both where it is.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_abi::CUresult;
use outboard_session::groups::{AREA, AREA_FLAGS, BLOCK, BROKE_OFF, FLAGS, Flag, Groups};
use outboard_wire::DevicePtr;
use outboard_wire::notice::{FreePlaces, PLACES_FREE};

use super::area::Area;
use super::deferred::ExclusiveStream;
use super::memory::View;
use super::transfer::CopySite;
use crate::io::Replier;

/// Where a copy or a signal has its flags, and a copy its slots.
pub(crate) struct Place {
    area: Arc<Area>,
    flags: usize,
    slots: usize,
    groups: Groups,
    /// Bytes of the slots; a signal has none.
    bytes: usize,
}

/// Where the client says that a place is, in the memory that a peer shares.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) flags: u64,
    /// None for a signal.
    pub(crate) slots: Option<u64>,
}

impl Place {
    /// The place for a copy of these groups, or for a signal. `None` if no client gives such a
    /// place out.
    pub(crate) fn new(area: &Arc<Area>, at: At, groups: Groups) -> Option<Place> {
        let flags = usize::try_from(at.flags).ok()?;
        let slots = at.slots.map_or(Some(0), |slots| usize::try_from(slots).ok())?;
        let bytes = at.slots.map_or(0, |_| groups.staging());
        let has_flags = groups.fit() && groups.count() > 0 && flags.is_multiple_of(FLAGS);
        if !has_flags || !(FLAGS..AREA_FLAGS).contains(&flags) {
            return None;
        }
        let has_slots = slots >= AREA_FLAGS
            && slots.is_multiple_of(FLAGS)
            && slots / BLOCK < AREA / BLOCK
            && bytes <= BLOCK - slots % BLOCK;
        if at.slots.is_some() && !has_slots {
            return None;
        }
        Some(Place { area: Arc::clone(area), flags, slots, groups, bytes })
    }

    pub(super) fn groups(&self) -> Groups {
        self.groups
    }

    /// Its address here, and on the device of a copy. The context is current.
    pub(super) fn view(&self, site: &CopySite<'_>) -> Result<View, CUresult> {
        // A copy names its slots by their addresses here.
        self.area.device(site, self.slots)?;
        Ok(self.view_from(self.area.device(site, self.flags)?))
    }

    /// The stream for halves of copies with these slots that do not lead: there they follow each
    /// other, as copies with the same slots are to, even if nothing comes of one of them. The
    /// context is current. `None` if there are enough such streams.
    pub(super) fn stream_beside(
        &self,
        site: &CopySite<'_>,
    ) -> Result<Option<Arc<ExclusiveStream>>, CUresult> {
        self.area.stream_beside(site, self.slots)
    }

    fn view_from(&self, device: DevicePtr) -> View {
        let [flags, slots] = [self.flags, self.slots].map(|at| self.area.address(at));
        // SAFETY: flags and slots lie within the area, as was checked when this was made, and
        // whoever uses the view keeps the place.
        unsafe { View::apart((flags, device), (slots, self.bytes)) }
    }

    fn has_flag(&self, flag: Flag) -> bool {
        let view = self.view_from(DevicePtr::NULL);
        view.flag(self.groups.flag(flag)).load(Ordering::Acquire) != 0
    }

    fn write(&self, flag: Flag, value: u32) {
        let view = self.view_from(DevicePtr::NULL);
        view.flag(self.groups.flag(flag)).store(value, Ordering::Release);
    }

    /// Whether this or the other worker has broken it off.
    pub(super) fn has_failed(&self) -> bool {
        self.has_flag(Flag::Failed)
    }

    /// Whether the half that leads has begun, as far as its flags say.
    pub(super) fn has_begun(&self) -> bool {
        self.has_flag(Flag::Reached) || self.has_flag(Flag::Full(0))
    }

    /// Nothing comes of the copy or signal: the other worker is to see it, too.
    pub(super) fn fail(&self) {
        self.write(Flag::Failed, BROKE_OFF);
    }

    /// The flags for which the device waits here that has the destination, or the source.
    pub(super) fn waited_for(&self, to_device: bool) -> Range<usize> {
        if to_device {
            self.groups.flag(Flag::Full(0))..self.groups.flag(Flag::Free(0))
        } else {
            self.groups.flag(Flag::Free(0))..self.groups.flag(Flag::Reached) + 1
        }
    }

    /// Lets this worker's device pass what it waits for here. The other one may undo it: call this
    /// until nothing waits.
    pub(super) fn release(&self, to_device: bool) {
        let view = self.view_from(DevicePtr::NULL);
        for flag in self.waited_for(to_device) {
            view.flag(flag).store(i32::MAX as u32, Ordering::Release);
        }
    }

    /// This worker does not use it any more. The second one to say so leaves it as a new one, and
    /// tells the client.
    pub(super) fn end(self, replier: &Replier) {
        if let Some(free) = self.leave() {
            // A client that has gone needs no word of it.
            let _ = replier.notice(PLACES_FREE, |writer| writer.put(&free));
        }
    }

    fn leave(self) -> Option<FreePlaces> {
        let view = self.view_from(DevicePtr::NULL);
        let ended = view.flag(self.groups.flag(Flag::Ended));
        if ended.fetch_add(1, Ordering::AcqRel) == 0 {
            return None;
        }
        for flag in 0..=self.groups.flag(Flag::Ended) {
            view.flag(flag).store(0, Ordering::Release);
        }
        self.area.is_free(self.flags, FLAGS + self.bytes)
    }

    /// What a signal stands for has happened, or never will; no device says so.
    pub(crate) fn tell(self, well: bool, replier: &Replier) {
        if well {
            self.write(Flag::Reached, 1);
        } else {
            self.fail();
        }
        self.end(replier);
    }

    /// The same without a device that has ever used it: nothing comes of the copy or signal.
    pub(crate) fn abandon(self, replier: &Replier) {
        self.fail();
        self.end(replier);
    }

    /// The device may go on to use it: it stays for good.
    pub(super) fn leak(self) {
        std::mem::forget(self.area);
    }
}

#[cfg(test)]
mod tests {
    use outboard_session::chunks::Cut;
    use outboard_transport::segment::Segment;

    use super::super::area::WORTH_TELLING;
    use super::super::locking::PageLocking;
    use super::*;
    use crate::helpers::Helpers;
    use crate::recorded::{calls, table};

    fn area() -> Arc<Area> {
        let segment = Arc::new(Segment::create("test", AREA).unwrap());
        Arc::new(Area::new(7, &segment, table(), &Helpers::new(), PageLocking::Pins))
    }

    fn groups(bytes: u64) -> Groups {
        Groups::passing(Cut::new(bytes, 1 << 20).unwrap())
    }

    const LARGE: u64 = 256 << 20;

    fn place(area: &Arc<Area>, flags: usize, slots: usize, bytes: u64) -> Option<Place> {
        let at = At { flags: flags as u64, slots: Some(slots as u64) };
        Place::new(area, at, groups(bytes))
    }

    #[test]
    fn places_lie_within_the_area() {
        let area = area();
        let there = |flags, slots, bytes| place(&area, flags, slots, bytes).is_some();
        assert!(there(FLAGS, BLOCK, LARGE) && there(AREA_FLAGS - FLAGS, AREA - (16 << 20), LARGE));
        assert!(there(FLAGS, AREA - (1 << 20), 1 << 20));
        for flags in [0, 8, FLAGS + 4, AREA_FLAGS, AREA, usize::MAX & !4095] {
            assert!(!there(flags, BLOCK, 1 << 20), "{flags:#x}");
        }
        for slots in [0, FLAGS, BLOCK + 8, 2 * BLOCK - (16 << 20) + FLAGS, AREA, usize::MAX & !4095]
        {
            assert!(!there(FLAGS, slots, LARGE), "{slots:#x}");
        }
        let signal = At { flags: FLAGS as u64, slots: None };
        assert!(Place::new(&area, signal, groups(1)).is_some());
        assert!(Place::new(&area, At { flags: u64::MAX, ..signal }, groups(1)).is_none());
        // Nobody was to touch a page of it.
        drop(area);
        assert!(calls().is_empty(), "the device knows nothing of it");
    }

    #[test]
    fn the_second_worker_to_leave_a_place_clears_it_and_tells() {
        let area = area();
        let both = || [(), ()].map(|()| place(&area, FLAGS, BLOCK, LARGE).unwrap());
        let [here, there] = both();
        here.write(Flag::Full(1), 3);
        here.fail();
        assert!(there.has_failed() && !there.has_begun());
        here.release(true);
        let flag = |flag| there.has_flag(flag);
        assert!(flag(Flag::Full(0)) && flag(Flag::Full(3)) && !flag(Flag::Free(0)));
        there.release(false);
        assert!(there.has_flag(Flag::Free(3)) && there.has_begun());
        assert_eq!(here.leave(), None);
        assert!(there.has_failed(), "the other one may look");
        assert_eq!(there.leave(), Some(FreePlaces { link: 7, places: vec![FLAGS as u64] }));
        let [here, there] = both();
        let view = here.view_from(DevicePtr::NULL);
        let left = (0..FLAGS / 4).filter(|flag| view.flag(*flag).load(Ordering::Relaxed) != 0);
        assert_eq!(left.count(), 0);
        drop((here, there));
    }

    #[test]
    fn small_places_are_told_of_together() {
        let area = area();
        let signal = |number: usize| {
            let at = At { flags: (number * FLAGS) as u64, slots: None };
            Place::new(&area, at, groups(1)).unwrap()
        };
        let mut told = Vec::new();
        for number in 1..=WORTH_TELLING / FLAGS - 1 {
            assert_eq!(signal(number).leave(), None);
            told.extend(signal(number).leave());
        }
        assert!(told.is_empty());
        let copy = || place(&area, AREA_FLAGS - FLAGS, BLOCK, 1).unwrap();
        assert_eq!(copy().leave(), None);
        assert_eq!(copy().leave().unwrap().places.len(), WORTH_TELLING / FLAGS);
    }
}
