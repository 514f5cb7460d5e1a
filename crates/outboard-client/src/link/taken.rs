//! How far the two sides have taken over what the other has sent. Both say so where a connection
//! can be replaced: what is not taken over is sent again.

use std::sync::atomic::{AtomicU64, Ordering};

use outboard_session::client::Incoming;

/// The client acknowledges received frames after so many frames or bytes, together with commands
/// that it sends anyway.
const TELL_FRAMES: u64 = 32;
const TELL_BYTES: u64 = 64 << 10;
/// And at once after so many bytes.
const TELL_AT_ONCE: u64 = 1 << 20;

/// Frames of the worker, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

/// What the reader knows of it, for all threads.
#[derive(Debug, Default)]
pub(super) struct TakenOver {
    /// Commands that the worker has taken over, as far as it has said.
    commands: AtomicU64,
    /// Frames received of the worker, and bytes.
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl TakenOver {
    /// The commands that the worker has taken over, as far as known.
    pub(super) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self) -> Received {
        Received {
            frames: self.frames.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// `bytes` more have come. What is to be acknowledged at once, if anything is: nothing may be
    /// posted for long.
    pub(super) fn note(&self, incoming: &Incoming, bytes: usize) -> Option<Received> {
        self.commands.store(incoming.taken(), Ordering::Relaxed);
        self.frames.store(incoming.received(), Ordering::Relaxed);
        let bytes = bytes as u64;
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (total / TELL_AT_ONCE > (total - bytes) / TELL_AT_ONCE)
            .then(|| Received { frames: incoming.received(), bytes: total })
    }
}

impl Received {
    /// Whether so much has come since `told` that it is to be acknowledged with the next commands.
    pub(super) fn is_due_after(&self, told: Received) -> bool {
        self.frames - told.frames >= TELL_FRAMES
            || self.bytes - told.bytes >= TELL_BYTES && self.frames > told.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_frames_or_bytes_are_acknowledged_with_the_next_commands() {
        let told = Received { frames: 10, bytes: 1000 };
        let after = |frames, bytes| Received { frames, bytes }.is_due_after(told);
        assert!(!after(10 + TELL_FRAMES - 1, 1000) && after(10 + TELL_FRAMES, 1000));
        assert!(!after(11, 1000 + TELL_BYTES - 1) && after(11, 1000 + TELL_BYTES));
        assert!(!after(10, 1000 + TELL_BYTES), "part of a frame cannot be acknowledged");
    }

    #[test]
    fn a_mebibyte_is_acknowledged_at_once_and_only_once() {
        let (taken, incoming) = (TakenOver::default(), Incoming::new());
        assert_eq!(taken.note(&incoming, TELL_AT_ONCE as usize - 1), None);
        let due = Received { frames: 0, bytes: TELL_AT_ONCE };
        assert_eq!(taken.note(&incoming, 1), Some(due));
        assert_eq!(taken.received(), due);
        assert_eq!(taken.note(&incoming, 1), None);
    }
}
