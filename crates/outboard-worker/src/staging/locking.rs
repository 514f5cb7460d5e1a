//! How a driver page-locks memory, and what it is good to do before.

use rustix::mm::{Advice, madvise};

/// What a driver does to the pages of memory that is registered with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PageLocking {
    /// It finds and pins each, as NVIDIA's does: milliseconds for a block of staging memory, less
    /// if all pages are there already.
    #[default]
    Pins,
    /// Nothing, as the software device: the system finds a page when it is first touched.
    Nothing,
}

impl PageLocking {
    /// Whether to register memory takes so long that it is better done ahead.
    pub(crate) fn is_slow(self) -> bool {
        self == PageLocking::Pins
    }

    /// Takes the pages of a mapping from the system, huge ones if it has them, if the driver is
    /// about to ask for each. Neither changes what the memory holds. A system that knows neither
    /// way finds the pages one by one, as they are registered.
    pub(super) fn prepare(self, memory: *mut u8, bytes: usize) {
        if self == PageLocking::Nothing {
            return;
        }
        for advice in [Advice::LinuxHugepage, Advice::LinuxPopulateWrite] {
            // SAFETY: the caller's mapping; pages are only added to it.
            let _ = unsafe { madvise(memory.cast(), bytes, advice) };
        }
    }
}

#[cfg(test)]
mod tests {
    use outboard_transport::segment::Segment;

    use super::*;

    /// Bytes of a mapping that are in memory.
    fn resident(segment: &Segment) -> usize {
        let mut pages = vec![0_u8; segment.bytes() / 4096];
        // SAFETY: the segment is mapped, and there is a byte for each of its pages.
        let outcome =
            unsafe { libc::mincore(segment.as_ptr().cast(), segment.bytes(), pages.as_mut_ptr()) };
        assert_eq!(outcome, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() * 4096
    }

    #[test]
    fn pages_are_taken_only_for_a_driver_that_pins_them() {
        let segment = Segment::create("test", 2 << 20).unwrap();
        PageLocking::Nothing.prepare(segment.as_ptr(), segment.bytes());
        assert_eq!(resident(&segment), 0);
        PageLocking::Pins.prepare(segment.as_ptr(), segment.bytes());
        assert_eq!(resident(&segment), segment.bytes());
    }
}
