//! Transfers from the worker that are under way. No input or output happens here; all of it runs
//! under the lock of the table.
//!
//! Lanes overtake each other. A download to memory that an earlier one of its stream still writes
//! is opened *behind* that one: chunks of it that come too early are put aside, each by itself, and
//! copied to their places when the earlier one has ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use outboard_session::chunks::{ChunkError, Cut, Expected};

use super::direction::Direction;
use super::host_bytes::HostBytes;
use super::table::{End, Measured, Outcome};

/// Bytes that are put aside at most; a lane that brings more of them waits.
const MOST_ASIDE: usize = 64 << 20;

#[derive(Debug)]
struct Download {
    expected: Expected,
    to: HostBytes,
    /// Chunks that threads are reading, and those that are put aside.
    reading: u32,
    /// Transfers that write to the same memory before this one.
    behind: Vec<u64>,
    aside: Vec<Early>,
    /// How many chunks will come if the worker has given the transfer up.
    cancelled_after: Option<u32>,
    outcome: Arc<Outcome>,
    /// When its first byte came.
    since: Option<Instant>,
    /// Whether an adapter of the server's may write its bytes.
    is_lent: bool,
}

/// Where a chunk that begins to come goes.
#[derive(Debug)]
pub(super) enum Room {
    Here(HostBytes),
    /// Into memory of the reader's, and then to [`Downloads::put_aside`].
    Aside,
}

/// A chunk that has come too early.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) transfer: u64,
    pub(super) index: u32,
    pub(super) to: HostBytes,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Downloads {
    under_way: HashMap<u64, Download>,
    aside: usize,
    measured: Vec<Measured>,
    lost: bool,
}

impl Downloads {
    /// Expects the chunks of transfer `number`, which belong `to` the program's memory, behind
    /// those of other transfers.
    pub(super) fn open(
        &mut self,
        number: u64,
        cut: Cut,
        to: HostBytes,
        behind: Vec<u64>,
        outcome: &Arc<Outcome>,
    ) {
        let download = Download {
            expected: Expected::new(cut, cut.count()),
            to,
            reading: 0,
            behind,
            aside: Vec::new(),
            cancelled_after: None,
            outcome: Arc::clone(outcome),
            since: None,
            is_lent: false,
        };
        self.under_way.insert(number, download);
    }

    pub(super) fn is_any(&self) -> bool {
        !self.under_way.is_empty()
    }

    pub(super) fn is_under_way(&self, transfer: u64) -> bool {
        self.under_way.contains_key(&transfer)
    }

    /// Whether the program's memory is still another transfer's.
    fn must_wait(&self, transfer: u64) -> bool {
        let behind = self.under_way.get(&transfer).map_or(&[][..], |download| &download.behind);
        behind.iter().any(|earlier| self.under_way.contains_key(earlier))
    }

    /// A chunk of a download begins to come: where its bytes go, if there is room now. `None` if
    /// there is no such download.
    pub(super) fn begin_chunk(
        &mut self,
        transfer: u64,
        index: u32,
        len: u32,
    ) -> Option<Result<Option<Room>, ChunkError>> {
        let early = self.must_wait(transfer);
        let download = self.under_way.get_mut(&transfer)?;
        if early && self.aside >= MOST_ASIDE && !self.lost {
            return Some(Ok(None));
        }
        download.since.get_or_insert_with(Instant::now);
        if !early {
            download.behind.clear();
        }
        Some(download.expected.begin(index, len).map(|offset| {
            download.reading += 1;
            Some(if early { Room::Aside } else { Room::Here(download.to.at(offset)) })
        }))
    }

    /// An adapter of the server's may write the bytes of a download.
    pub(super) fn lend(&mut self, transfer: u64) {
        if let Some(download) = self.under_way.get_mut(&transfer) {
            download.is_lent = true;
        }
    }

    /// Such an adapter has written a chunk: whether its transfer has ended with it. `None` if no
    /// memory is lent for it.
    pub(super) fn written(
        &mut self,
        transfer: u64,
        index: u32,
        len: u32,
    ) -> Option<Result<bool, ChunkError>> {
        self.under_way.get(&transfer).filter(|download| download.is_lent)?;
        // One for which memory is lent is behind no other.
        let begun = self.begin_chunk(transfer, index, len)?;
        Some(begun.map(|_| self.end_chunk(transfer, index, true)))
    }

    /// A chunk that had to be put aside has come whole. Comes back if its place is free by now.
    pub(super) fn put_aside(&mut self, transfer: u64, index: u32, bytes: Vec<u8>) -> Option<Early> {
        let early = self.must_wait(transfer) && !self.lost;
        let download = self.under_way.get_mut(&transfer)?;
        let to = download.to.at(download.expected.cut().offset(index));
        let chunk = Early { transfer, index, to, bytes };
        if !early {
            return Some(chunk);
        }
        self.aside += chunk.bytes.len();
        download.aside.push(chunk);
        None
    }

    /// Chunks that were put aside and whose places have become free. Each is to be copied there,
    /// and then [ends](Self::end_chunk).
    pub(super) fn take_free(&mut self) -> Vec<Early> {
        if self.aside == 0 {
            return Vec::new();
        }
        let with_some = self.under_way.iter().filter(|(_, download)| !download.aside.is_empty());
        let free: Vec<u64> = with_some
            .map(|(number, _)| *number)
            .filter(|number| !self.must_wait(*number))
            .collect();
        let mut chunks = Vec::new();
        for number in free {
            if let Some(download) = self.under_way.get_mut(&number) {
                chunks.append(&mut download.aside);
            }
        }
        self.aside -= chunks.iter().map(|chunk: &Early| chunk.bytes.len()).sum::<usize>();
        chunks
    }

    /// A chunk has been read, unless it broke off and may come again. Whether its transfer has
    /// ended with it.
    pub(super) fn end_chunk(&mut self, transfer: u64, index: u32, whole: bool) -> bool {
        let Some(download) = self.under_way.get_mut(&transfer) else { return true };
        download.reading -= 1;
        if whole {
            download.expected.finish();
        } else {
            download.expected.broke_off(index);
        }
        self.settle(transfer);
        !self.is_under_way(transfer)
    }

    /// The worker has given a download up after `sent` chunks.
    pub(super) fn cancel(&mut self, transfer: u64, sent: u32) {
        if let Some(download) = self.under_way.get_mut(&transfer) {
            download.cancelled_after = Some(sent);
            self.settle(transfer);
        }
    }

    pub(super) fn take_measured(&mut self) -> Vec<Measured> {
        std::mem::take(&mut self.measured)
    }

    /// The link is lost: every download ends, one of which a thread still reads a chunk when that
    /// thread is done.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.aside = 0;
        for transfer in self.under_way.keys().copied().collect::<Vec<_>>() {
            if let Some(download) = self.under_way.get_mut(&transfer) {
                for early in std::mem::take(&mut download.aside) {
                    download.reading -= 1;
                    download.expected.broke_off(early.index);
                }
            }
            self.settle(transfer);
        }
    }

    fn settle(&mut self, transfer: u64) {
        let Some(download) = self.under_way.get(&transfer) else { return };
        let end = if download.expected.is_complete() {
            End::Complete
        } else if download.cancelled_after.is_some_and(|sent| download.expected.finished() >= sent)
        {
            End::Cancelled
        } else if self.lost {
            End::Lost
        } else {
            return;
        };
        if download.reading > 0 {
            return;
        }
        if let (End::Complete, Some(since)) = (end, download.since) {
            let (cut, time) = (download.expected.cut(), since.elapsed());
            self.measured.push(Measured { direction: Direction::Down, cut, time });
        }
        download.outcome.set(end);
        self.under_way.remove(&transfer);
    }
}

#[cfg(test)]
mod tests;
