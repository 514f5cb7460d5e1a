//! How much shared memory the background copies of each stream use, and how many operations the
//! stream holds for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outboard_wire::{ContextId, StreamId};

/// A stream of a context.
pub type Stream = (ContextId, StreamId);

/// Bytes that the copies of one stream may have at once: those of four large ones.
const MOST_BYTES: usize = 66 << 20;
/// Operations that a stream may hold for them. NVIDIA's driver has its caller wait at 1,020 calls,
/// and copies on lanes may have some of those.
const MOST_OPERATIONS: usize = 272;

/// The account.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<Stream, Used>>);

#[derive(Debug, Default)]
struct Used {
    copies: usize,
    bytes: usize,
    operations: usize,
    /// Chunks of its copies that have been copied.
    moved: u64,
    /// How many there were when a thread last waited for room without success.
    stuck: Option<u64>,
}

/// One copy's share of the account while this value lives.
#[derive(Debug)]
pub(super) struct Share {
    streams: Arc<Streams>,
    stream: Stream,
    bytes: usize,
    operations: usize,
}

impl Streams {
    fn used(&self) -> MutexGuard<'_, HashMap<Stream, Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share for a copy, if its stream may have one more. One that has none may.
    pub(super) fn share(
        self: &Arc<Streams>,
        stream: Stream,
        bytes: usize,
        operations: usize,
    ) -> Option<Share> {
        let mut streams = self.used();
        let used = streams.entry(stream).or_default();
        let fits = used.bytes + bytes <= MOST_BYTES
            && used.operations + operations <= MOST_OPERATIONS
            && used.stuck != Some(used.moved);
        if used.copies > 0 && !fits {
            return None;
        }
        used.copies += 1;
        used.bytes += bytes;
        used.operations += operations;
        Some(Share { streams: Arc::clone(self), stream, bytes, operations })
    }

    /// How far the copies of a stream are: a number that grows; none if there is nothing to wait
    /// for, as the stream has no copies, or is known to stand still.
    pub(super) fn progress(&self, stream: Stream) -> Option<u64> {
        let streams = self.used();
        let used = streams.get(&stream)?;
        (used.stuck != Some(used.moved)).then_some(used.moved)
    }

    /// Nothing has moved for so long that the stream must be standing still: it gets no more until
    /// something has.
    pub(super) fn stands_still(&self, stream: Stream) {
        if let Some(used) = self.used().get_mut(&stream) {
            used.stuck = Some(used.moved);
        }
    }
}

impl Share {
    /// Some of the copy's bytes have moved.
    pub(super) fn moved(&self) {
        if let Some(used) = self.streams.used().get_mut(&self.stream) {
            used.moved += 1;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut streams = self.streams.used();
        let Some(used) = streams.get_mut(&self.stream) else { return };
        used.copies -= 1;
        used.bytes -= self.bytes;
        used.operations -= self.operations;
        used.moved += 1;
        if used.copies == 0 {
            streams.remove(&self.stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Stream = (ContextId(1), StreamId(7));
    const OTHER: Stream = (ContextId(1), StreamId(8));

    #[test]
    fn a_stream_has_its_share_and_no_more() {
        let streams = Arc::new(Streams::default());
        assert_eq!(streams.progress(FIRST), None, "there is nothing to wait for");
        let large = streams.share(FIRST, 2 * MOST_BYTES, 2 * MOST_OPERATIONS);
        let large = large.expect("one may always be there");
        assert!(streams.share(FIRST, 1, 1).is_none());
        let other = streams.share(OTHER, 1, MOST_OPERATIONS).expect("another stream has its own");
        assert!(streams.share(OTHER, 1, 1).is_none());
        drop((large, other));
        let shares: Vec<_> =
            (0..4).filter_map(|_| streams.share(FIRST, MOST_BYTES / 4, 60)).collect();
        assert_eq!(shares.len(), 4);
        assert!(streams.share(FIRST, 4, 1).is_none());
        drop(shares);
        assert!(streams.used().is_empty());
    }

    #[test]
    fn who_waited_in_vain_once_waits_again_when_something_has_moved() {
        let streams = Arc::new(Streams::default());
        let (first, second) =
            (streams.share(FIRST, 1, 1).unwrap(), streams.share(FIRST, 1, 1).unwrap());
        assert_eq!(streams.progress(FIRST), Some(0));
        streams.stands_still(FIRST);
        assert_eq!(streams.progress(FIRST), None);
        assert!(streams.share(FIRST, 1, 1).is_none(), "what stands still gets no more");
        first.moved();
        assert_eq!(streams.progress(FIRST), Some(1));
        streams.stands_still(FIRST);
        drop(second);
        assert!(streams.share(FIRST, 1, 1).is_some());
    }
}
