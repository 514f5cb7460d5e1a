//! What one side of a lane has received, and what it has told the other side of that.
//!
//! Frames carry how many were received the other way, so most need no word of their own. Threads
//! that receive and threads that tell share this without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The other side is told of what was received after so many bytes or frames.
pub const TELL_BYTES: u64 = 1 << 20;
const TELL_FRAMES: u64 = 16;

/// Frames received on one lane.
#[derive(Debug, Default)]
pub struct Receipts {
    /// Frames received, and how many of them the other side was told of.
    received: AtomicU64,
    told: AtomicU64,
    /// Bytes received since then.
    untold: AtomicU64,
    /// Whether the other side is to be told without waiting for a frame that goes anyway.
    owes: AtomicBool,
}

impl Receipts {
    /// How many frames have been received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// A frame with so many bytes has been received. Whether it is time to tell the other side.
    #[must_use]
    pub fn add(&self, bytes: u32) -> bool {
        let received = self.received.fetch_add(1, Ordering::SeqCst) + 1;
        let untold = self.untold.fetch_add(bytes.into(), Ordering::Relaxed) + u64::from(bytes);
        untold >= TELL_BYTES
            || received - self.told.load(Ordering::Relaxed).min(received) >= TELL_FRAMES
    }

    /// The other side is to be told at once, if anything is new.
    pub fn owe(&self) {
        if !self.all_told() {
            self.owes.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the other side is to be told at once.
    pub fn owes(&self) -> bool {
        self.owes.load(Ordering::SeqCst)
    }

    /// Whether nothing has been received that the other side was not told of.
    pub fn all_told(&self) -> bool {
        self.received() <= self.told.load(Ordering::SeqCst)
    }

    /// How many frames have been received, for the other side to be told now. That something is
    /// owed is cleared first, so that what comes meanwhile is either told now or owed anew.
    pub fn tell(&self) -> u64 {
        self.owes.store(false, Ordering::SeqCst);
        self.untold.store(0, Ordering::SeqCst);
        let received = self.received();
        self.told.store(received, Ordering::SeqCst);
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_is_told_after_many_bytes_or_frames() {
        let receipts = Receipts::default();
        receipts.owe();
        assert!(!receipts.owes(), "nothing is new");
        assert!((1..TELL_FRAMES).all(|_| !receipts.add(1)) && receipts.add(1));
        receipts.owe();
        assert!(receipts.owes() && !receipts.all_told());
        assert_eq!(receipts.tell(), TELL_FRAMES);
        assert!(!receipts.owes() && receipts.all_told());
        assert!(!receipts.add(1) && receipts.add(TELL_BYTES as u32));
    }
}
