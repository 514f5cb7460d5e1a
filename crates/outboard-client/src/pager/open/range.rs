//! One range of memory that stays accessible: what the device has of it, and how bytes go both
//! ways. Words are those of four bytes that memory has, of which the first and the last of the
//! range may be parts.

use std::ops::Range;

use outboard_front::backend::{Result, UnifiedPtr};
use outboard_wire::sum::sum;

use super::door::Closed;
use crate::pager::difference::{Stretch, WORD, runs, stretches};
use crate::pager::moved::Moved;
use crate::pager::pages::page_bytes;
use crate::pager::store::{Home, Store};

/// Bytes that are compared at once on this side.
const BLOCK: usize = 4096;
/// Bytes that have a sum of their own, and come with the answer to a wait as one.
pub(super) const CHUNK: usize = 16 << 10;
/// A chunk comes with the answer to a wait if it has changed on the device before one of so many
/// waits.
const WAITS: u32 = 4;

/// A part of a range that is compared with the device's by its sum.
#[derive(Clone, Debug)]
struct Chunk {
    /// Of what the device is known to have.
    sum: Option<u64>,
    /// How many waits have ended since the device changed it.
    waits: u32,
}

/// Memory of the program that is never protected, but while words of it are stored together.
#[derive(Debug)]
pub(in crate::pager) struct Open {
    pub(in crate::pager) home: Home,
    pub(in crate::pager) address: UnifiedPtr,
    /// What the device is known to have, as far as the program may know it.
    pub(in crate::pager) twin: Vec<u8>,
    /// The same with what the pager has learned since, which the program does not see yet.
    next: Option<Vec<u8>>,
    chunks: Vec<Chunk>,
    /// How often what is known of the device has changed, or a wait has ended.
    pub(super) version: u64,
}

/// Bytes that the program has changed: where they are, and what they are now.
#[derive(Debug, PartialEq)]
pub(super) struct Changed {
    at: usize,
    now: Vec<u8>,
}

impl Open {
    /// Memory of which the device has zeros.
    pub(super) fn new(home: Home, address: UnifiedPtr, bytes: usize) -> Open {
        // A few bytes cost as little as their sum.
        let waits = if bytes <= CHUNK { 0 } else { WAITS };
        Open {
            home,
            address,
            twin: vec![0; bytes],
            next: None,
            chunks: vec![Chunk { sum: None, waits }; bytes.div_ceil(CHUNK)],
            version: 0,
        }
    }

    pub(in crate::pager) fn range(&self) -> Range<UnifiedPtr> {
        self.address.range(self.twin.len() as u64)
    }

    fn program(&self, at: usize) -> *mut u8 {
        self.address.offset(at as u64).host().pointer()
    }

    /// What the program has changed since the device was told.
    pub(super) fn changed(&self) -> Vec<Changed> {
        let mut found: Vec<Changed> = Vec::new();
        for at in (0..self.twin.len()).step_by(BLOCK) {
            let old = &self.twin[at..(at + BLOCK).min(self.twin.len())];
            // SAFETY: the program keeps page-locked memory readable until it takes it back, which
            // removes the range.
            let same = unsafe {
                libc::memcmp(self.program(at).cast(), old.as_ptr().cast(), old.len()) == 0
            };
            if same {
                continue;
            }
            let mut now = vec![0; old.len()];
            // SAFETY: as above.
            unsafe { now.as_mut_ptr().copy_from_nonoverlapping(self.program(at), now.len()) };
            match found.last_mut() {
                Some(last) if last.at + last.now.len() == at => last.now.append(&mut now),
                _ => found.push(Changed { at, now }),
            }
        }
        found
    }

    /// Sends what the program has changed.
    pub(super) fn send(
        &mut self,
        store: &dyn Store,
        changed: &[Changed],
        moved: &mut Moved,
    ) -> Result<()> {
        for Changed { at, now } in changed {
            self.version += 1;
            let (address, old) = (self.address.offset(*at as u64), &self.twin[*at..at + now.len()]);
            // The device stores whole words where its memory has such.
            let whole = match address.0.is_multiple_of(WORD as u64) {
                true => now.len() / WORD * WORD,
                false => 0,
            };
            for Stretch { from, mask, data } in
                stretches(&old[..whole], &now[..whole], now.len().next_multiple_of(BLOCK))
            {
                store.patch(self.home, address.offset(from as u64), &mask, data)?;
                moved.pushed += data.len() as u64;
            }
            let address = address.offset(whole as u64);
            for run in runs(&old[whole..], &now[whole..], address, 0) {
                let data = &now[whole..][run.clone()];
                store.patch(self.home, address.offset(run.start as u64), &[], data)?;
                moved.pushed += data.len() as u64;
            }
            self.twin[*at..at + now.len()].copy_from_slice(now);
            self.forget_sums(&(*at..at + now.len()));
        }
        Ok(())
    }

    /// The number of chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The bytes of a chunk.
    pub(super) fn bytes_of(&self, chunk: usize) -> Range<usize> {
        chunk * CHUNK..((chunk + 1) * CHUNK).min(self.twin.len())
    }

    fn address_of(&self, bytes: &Range<usize>) -> (UnifiedPtr, u32) {
        (self.address.offset(bytes.start as u64), bytes.len() as u32)
    }

    /// Where a chunk is.
    pub(super) fn place(&self, chunk: usize) -> (UnifiedPtr, u32) {
        self.address_of(&self.bytes_of(chunk))
    }

    /// Whether the device is likely to change a chunk.
    pub(super) fn is_likely(&self, chunk: usize) -> bool {
        self.chunks[chunk].waits < WAITS
    }

    /// A wait has ended, for which the chunks that are likely to change have come.
    pub(super) fn count_wait(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.waits = chunk.waits.saturating_add(1));
    }

    /// The sum of what the device is known to have of a chunk.
    pub(super) fn sum(&mut self, chunk: usize, seed: u64) -> u64 {
        let bytes = self.bytes_of(chunk);
        let known = self.next.as_ref().unwrap_or(&self.twin);
        *self.chunks[chunk].sum.get_or_insert_with(|| sum(seed, &known[bytes]))
    }

    fn forget_sums(&mut self, bytes: &Range<usize>) {
        self.chunks[bytes.start / CHUNK..bytes.end.div_ceil(CHUNK)]
            .iter_mut()
            .for_each(|chunk| chunk.sum = None);
    }

    /// Where an address is in it.
    pub(super) fn offset(&self, address: UnifiedPtr) -> usize {
        address.since(self.address) as usize
    }

    /// The device has these bytes. Whether that is news.
    pub(super) fn learn(&mut self, at: usize, data: &[u8]) -> bool {
        let bytes = at..at + data.len();
        if self.next.as_ref().unwrap_or(&self.twin)[bytes.clone()] == *data {
            return false;
        }
        let twin = &self.twin;
        self.next.get_or_insert_with(|| twin.clone())[bytes.clone()].copy_from_slice(data);
        self.forget_sums(&bytes);
        true
    }

    /// Asks the device for bytes; with a `seed` they are likely to be as they are known to be.
    /// Whether they are news.
    pub(super) fn fetch(
        &mut self,
        store: &dyn Store,
        bytes: &Range<usize>,
        seed: Option<u64>,
        moved: &mut Moved,
    ) -> Result<bool> {
        let known = self.next.as_ref().unwrap_or(&self.twin);
        let mut data = known[bytes.clone()].to_vec();
        let (address, _) = self.address_of(bytes);
        // SAFETY: bytes of this function.
        let differs =
            unsafe { store.fetch(self.home, address, data.as_mut_ptr(), data.len(), seed) }?;
        if differs {
            moved.fetched += data.len() as u64;
        }
        Ok(differs && self.learn(bytes.start, &data))
    }

    /// What was found is not known to be so any more.
    pub(super) fn forget(&mut self) {
        if self.next.take().is_some() {
            self.chunks.iter_mut().for_each(|chunk| chunk.sum = None);
        }
    }

    /// The words that the device has changed, which the program does not see yet.
    pub(super) fn news(&self) -> Vec<Range<usize>> {
        let Some(next) = &self.next else { return Vec::new() };
        let blocks = (0..next.len()).step_by(BLOCK).filter_map(|at| {
            let bytes = at..(at + BLOCK).min(next.len());
            let (old, new) = (&self.twin[bytes.clone()], &next[bytes]);
            (old != new).then(|| (at, runs(old, new, self.address.offset(at as u64), 0)))
        });
        blocks
            .flat_map(|(at, runs)| runs.into_iter().map(move |run| at + run.start..at + run.end))
            .collect()
    }

    /// The whole pages of it, as bytes. On others, allocators may have words of their own, which
    /// they touch under their locks.
    pub(super) fn pages(&self) -> Range<usize> {
        let Range { start, end } = self.range();
        let first = start.next_multiple_of(page_bytes()).min(end);
        let last = end.previous_multiple_of(page_bytes()).max(first);
        self.offset(first)..self.offset(last)
    }

    /// Closes the pages with several words that are new.
    pub(super) fn close(&self, news: &[Range<usize>]) -> Vec<(Range<usize>, Closed)> {
        let (page, all) = (page_bytes() as usize, self.pages());
        let mut runs: Vec<Range<usize>> = Vec::new();
        for run in news {
            // Pages are counted from the first whole one.
            let start = run.start.max(all.start) - all.start;
            let end = run.end.min(all.end).saturating_sub(all.start);
            if start >= end {
                continue;
            }
            let (start, end) =
                (all.start + start / page * page, all.start + end.next_multiple_of(page));
            match runs.last_mut() {
                Some(last) if last.end >= start => last.end = last.end.max(end),
                _ => runs.push(start..end),
            }
        }
        let close = |pages: Range<usize>| {
            let address = self.address.offset(pages.start as u64).host();
            // Where it cannot be closed, words are stored one after the other.
            Some((pages.clone(), Closed::new(address, pages.len()).ok()?))
        };
        runs.into_iter().filter_map(close).collect()
    }

    /// Stores words that the device has changed, and no others: the program may be writing to
    /// those, except to those on pages that are closed.
    pub(super) fn show(&mut self, news: &[Range<usize>], closed: &[(Range<usize>, Closed)]) {
        let Some(next) = self.next.take() else { return };
        for (pages, closed) in closed {
            let inside = |run: &Range<usize>| run.start.max(pages.start)..run.end.min(pages.end);
            let changed = closed.change(|bytes| {
                for run in news.iter().map(inside).filter(|run| run.start < run.end) {
                    bytes[run.start - pages.start..run.end - pages.start]
                        .copy_from_slice(&next[run]);
                }
            });
            if changed.is_err() {
                // The device is known not to have what is here: the next look finds it again.
                self.version += 1;
                self.chunks.iter_mut().for_each(|chunk| chunk.sum = None);
                return;
            }
        }
        for run in news {
            let mut at = run.start;
            for (pages, _) in closed.iter().filter(|(pages, _)| pages.end > run.start) {
                self.store(&next, at..pages.start.min(run.end));
                at = at.max(pages.end);
            }
            self.store(&next, at..run.end);
            for chunk in &mut self.chunks[run.start / CHUNK..run.end.div_ceil(CHUNK)] {
                chunk.waits = 0;
            }
        }
        self.version += 1;
        self.twin = next;
    }

    /// Stores bytes, all of which are new, and each word whole.
    fn store(&self, from: &[u8], bytes: Range<usize>) {
        let mut at = bytes.start;
        while at < bytes.end {
            let word = WORD - (self.address.0 as usize + at) % WORD;
            let to = self.program(at);
            let words = (bytes.end - at) / WORD * WORD;
            let end = match word == WORD && words > 0 {
                true => at + words,
                false => (at + word).min(bytes.end),
            };
            match <[u8; WORD]>::try_from(&from[at..end]) {
                // SAFETY: the program keeps page-locked memory writable until it takes it back; a
                // whole word is aligned, and so are several.
                Ok(word) if (to as usize).is_multiple_of(WORD) => unsafe {
                    to.cast::<u32>().write_volatile(u32::from_ne_bytes(word));
                },
                // SAFETY: as above.
                _ => unsafe { to.copy_from_nonoverlapping(from[at..end].as_ptr(), end - at) },
            }
            at = end;
        }
    }
}
