//! Addresses that a process has reserved, so that the system maps nothing else there.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use outboard_ranges::RangeMap;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::locks::lock;

/// Reserved addresses, and what was taken of them and of others.
#[derive(Debug, Default)]
pub struct Reserved(Mutex<ReservedState>);

#[derive(Debug, Default)]
struct ReservedState {
    /// The ranges that are reserved.
    kept: RangeMap<u64, ()>,
    /// The ranges that somebody has mapped something at.
    taken: RangeMap<u64, ()>,
}

impl Reserved {
    /// Nothing.
    pub const fn new() -> Reserved {
        Reserved(Mutex::new(ReservedState { kept: RangeMap::new(), taken: RangeMap::new() }))
    }

    fn state(&self) -> MutexGuard<'_, ReservedState> {
        lock(&self.0)
    }

    /// Reserves whole pages at which nothing is.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something is mapped there, or the system's error.
    pub fn reserve(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.state();
        reserve(&range, MapFlags::FIXED_NOREPLACE)?;
        state.kept.insert(range.start, range.end - range.start, ());
        Ok(())
    }

    /// Whether anything is reserved.
    pub fn is_empty(&self) -> bool {
        self.state().kept.is_empty()
    }

    /// Takes whole pages: reserved ones, or others at which nothing is. Until they are given back,
    /// the caller may map there what it likes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an empty range, [`io::ErrorKind::AlreadyExists`] if a
    /// part is taken or something is mapped there, or the system's error.
    pub fn take(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.state();
        if range.start >= range.end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if state.taken.overlaps(range.start, range.end - range.start) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let others: Vec<_> = state.kept.gaps_in(&range);
        for (made, other) in others.iter().enumerate() {
            if let Err(error) = reserve(other, MapFlags::FIXED_NOREPLACE) {
                others[..made].iter().for_each(unmap);
                return Err(error);
            }
        }
        state.taken.insert(range.start, range.end - range.start, ());
        Ok(())
    }

    /// Gives back the range that was taken from this address on. Unmaps what was mapped there; the
    /// addresses are reserved or free again, as before.
    ///
    /// # Safety
    /// Nobody uses any more what was mapped there.
    pub unsafe fn give_back(&self, start: u64) {
        let mut state = self.state();
        let Some((bytes, ())) = state.taken.remove(start) else { return };
        let range = start..start + bytes;
        state.kept.gaps_in(&range).iter().for_each(unmap);
        for kept in state.kept.parts_in(&range) {
            // If the system has no further mapping to give, the memory leaks, but the addresses
            // stay occupied.
            let _ = reserve(&kept, MapFlags::FIXED);
        }
    }

    /// Gives up all that is reserved and not taken.
    pub fn clear(&self) {
        let mut state = self.state();
        for (start, bytes, ()) in std::mem::take(&mut state.kept).iter() {
            state.taken.gaps_in(&(start..start + bytes)).iter().for_each(unmap);
        }
    }
}

/// Maps inaccessible pages there.
fn reserve(range: &Range<u64>, place: MapFlags) -> io::Result<()> {
    let (at, bytes) = (range.start as *mut c_void, (range.end - range.start) as usize);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | place;
    // SAFETY: the caller says that either nothing is replaced, or what nobody uses any more.
    let got = unsafe { mmap_anonymous(at, bytes, ProtFlags::empty(), flags) }?;
    if got != at {
        // A kernel that does not know the flag takes the address as a hint.
        unmap(&(got as u64..got as u64 + bytes as u64));
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Tools that write a process's memory to a file need not look at it.
    // SAFETY: mapped above; the advice changes no contents.
    let _ = unsafe { madvise(at, bytes, Advice::LinuxDontDump) };
    Ok(())
}

fn unmap(range: &Range<u64>) {
    // SAFETY: only what this module has mapped, and what users have put there and use no more.
    let _ = unsafe { munmap(range.start as *mut c_void, (range.end - range.start) as usize) };
}

#[cfg(test)]
mod tests {
    use outboard_ranges::own_mappings;

    use super::*;

    const PAGE: u64 = 4096;

    /// Addresses that nothing else in this process takes: each test has its own.
    fn place(test: u64) -> u64 {
        0x2900_0000_0000 + (test << 30)
    }

    fn write(address: u64) -> io::Result<()> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: addresses that the test has taken.
        unsafe {
            let at = mmap_anonymous(address as *mut c_void, PAGE as usize, access, flags)?;
            at.cast::<u64>().write_volatile(address);
        }
        Ok(())
    }

    /// Whether anything is mapped at a page.
    fn is_mapped(address: u64) -> bool {
        own_mappings().unwrap().any(|mapping| mapping.range.contains(&address))
    }

    #[test]
    fn what_was_reserved_can_be_taken_and_is_reserved_again() {
        let (reserved, base) = (Reserved::new(), place(0));
        reserved.reserve(base..base + 8 * PAGE).unwrap();
        assert!(reserved.reserve(base + PAGE..base + 2 * PAGE).is_err(), "something is there");
        reserved.take(base + PAGE..base + 3 * PAGE).unwrap();
        write(base + 2 * PAGE).unwrap();
        for taken in
            [base + 2 * PAGE..base + 4 * PAGE, base..base + 2 * PAGE, base..base + 8 * PAGE]
        {
            assert!(reserved.take(taken).is_err(), "somebody has a part of it");
        }
        // SAFETY: nobody uses it any more.
        unsafe { reserved.give_back(base + PAGE) };
        assert!(
            Reserved::new().take(base + 2 * PAGE..base + 3 * PAGE).is_err(),
            "it is reserved again"
        );
        reserved.take(base + 2 * PAGE..base + 4 * PAGE).unwrap();
        write(base + 3 * PAGE).unwrap();
        reserved.clear();
        assert!(is_mapped(base + 3 * PAGE) && !is_mapped(base) && !is_mapped(base + 4 * PAGE));
        // SAFETY: nobody uses it any more.
        unsafe { reserved.give_back(base + 2 * PAGE) };
        assert!(
            !is_mapped(base + 2 * PAGE) && !is_mapped(base + 3 * PAGE),
            "what is not reserved is free"
        );
    }

    #[test]
    fn other_addresses_are_taken_only_where_nothing_is() {
        let (reserved, other, base) = (Reserved::new(), Reserved::new(), place(1));
        other.reserve(base + 6 * PAGE..base + 7 * PAGE).unwrap();
        reserved.reserve(base + 2 * PAGE..base + 4 * PAGE).unwrap();
        assert!(reserved.take(base..base + 7 * PAGE).is_err());
        assert!(!is_mapped(base) && !is_mapped(base + 5 * PAGE), "nothing is left of an attempt");
        reserved.take(base + PAGE..base + 5 * PAGE).unwrap();
        for page in 1..5 {
            write(base + page * PAGE).unwrap();
        }
        // SAFETY: nobody uses it any more.
        unsafe { reserved.give_back(base + PAGE) };
        assert!(
            !is_mapped(base + PAGE) && is_mapped(base + 2 * PAGE) && !is_mapped(base + 4 * PAGE)
        );
        assert!(reserved.take(base..base).is_err() && reserved.take(base + PAGE..base).is_err());
        reserved.clear();
        other.clear();
        assert!(!is_mapped(base + 2 * PAGE) && reserved.is_empty());
    }
}
