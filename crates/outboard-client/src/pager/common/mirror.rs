//! What one server has of a region.

use std::ops::Range;

use outboard_front::backend::{Result, ServerId, UnifiedPtr};

use super::marks::Marks;
use super::memory::Memory;
use crate::pager::difference::{Stretch, runs, stretches};
use crate::pager::moved::Moved;
use crate::pager::pages::{Own, page_bytes};
use crate::pager::store::{Home, Kind, Store};

/// The most bytes that are compared and moved at once.
const PIECE: usize = 1 << 20;
/// Bytes that may lie between two runs that are sent as one.
const GAP: usize = 256;

/// A server's bytes of a region, and what is known of them.
pub(super) struct Mirror {
    pub(super) server: ServerId,
    pub(super) home: Home,
    pub(super) store: &'static dyn Store,
    /// What the server had when it was last asked or told. `None` if it has the program's own
    /// pages.
    twin: Option<Own>,
    /// Pages of which the server may have newer bytes than the program.
    pub(super) newer: Marks,
    /// Pages of which the program may have newer bytes than the server.
    pub(super) older: Marks,
    /// Whether something was sent that may not have arrived.
    is_sent: bool,
    pub(super) moved: Moved,
}

/// The bytes of pages of a region of `all` bytes.
pub(super) fn bytes(pages: &Range<usize>, all: usize) -> Range<usize> {
    pages.start * page_bytes() as usize..(pages.end * page_bytes() as usize).min(all)
}

impl Mirror {
    /// A server that has zeros.
    pub(super) fn of_zeros(
        server: ServerId,
        home: Home,
        store: &'static dyn Store,
        all: usize,
    ) -> std::io::Result<Mirror> {
        let (pages, twin) = (all.div_ceil(page_bytes() as usize), Some(Own::zeroed(all)?));
        let (newer, older) = (Marks::new(pages, false), Marks::new(pages, true));
        Ok(Mirror {
            server,
            home,
            store,
            twin,
            newer,
            older,
            is_sent: false,
            moved: Moved::default(),
        })
    }

    /// A server that has what is in `memory`, but for the pages of which it may have newer bytes.
    pub(super) fn of_known(
        server: ServerId,
        home: Home,
        store: &'static dyn Store,
        (memory, all): (&Memory, usize),
        newer: Vec<bool>,
    ) -> std::io::Result<Mirror> {
        let mut mirror = Mirror::of_zeros(server, home, store, all)?;
        mirror.older = Marks::new(newer.len(), false);
        mirror.newer = Marks::of(newer);
        for part in memory.touched(&(0..all)) {
            mirror.learn(part.start, &memory.read(&part));
        }
        Ok(mirror)
    }

    /// A server that had these bytes of memory which is never protected, and may have newer ones.
    pub(super) fn of_twin(
        server: ServerId,
        home: Home,
        store: &'static dyn Store,
        twin: &[u8],
    ) -> std::io::Result<Mirror> {
        let mut mirror = Mirror::of_zeros(server, home, store, twin.len())?;
        mirror.newer = Marks::new(twin.len().div_ceil(page_bytes() as usize), true);
        mirror.learn(0, twin);
        Ok(mirror)
    }

    /// A server that has the program's own pages.
    pub(super) fn of_same(
        server: ServerId,
        home: Home,
        store: &'static dyn Store,
        all: usize,
    ) -> Mirror {
        let pages = all.div_ceil(page_bytes() as usize);
        let (newer, older) = (Marks::new(pages, false), Marks::new(pages, false));
        Mirror {
            server,
            home,
            store,
            twin: None,
            newer,
            older,
            is_sent: false,
            moved: Moved::default(),
        }
    }

    /// Whether the server has the program's own pages.
    pub(super) fn is_same(&self) -> bool {
        self.twin.is_none()
    }

    /// The program may have newer bytes.
    pub(super) fn falls_behind(&mut self, pages: &Range<usize>) {
        if !self.is_same() {
            self.older.set(pages, true);
        }
    }

    /// The server now has these bytes.
    fn learn(&self, at: usize, data: &[u8]) {
        if let Some(twin) = &self.twin {
            // SAFETY: the twin has as many bytes as the region.
            unsafe { twin.at(at).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        }
    }

    /// What the server is known to have.
    fn known(&self, bytes: &Range<usize>) -> Option<&[u8]> {
        let twin = self.twin.as_ref()?;
        // SAFETY: as for `learn`, and nothing writes while this is borrowed.
        Some(unsafe { std::slice::from_raw_parts(twin.at(bytes.start).cast_const(), bytes.len()) })
    }

    /// Asks the server for pages, and has the program see what it has changed there; the pages of
    /// which that is so.
    pub(super) fn bring(
        &mut self,
        base: UnifiedPtr,
        (memory, all): (&Memory, usize),
        pages: &Range<usize>,
        seed: u64,
    ) -> Result<Vec<usize>> {
        let range = bytes(pages, all);
        let mut changed = Vec::new();
        for at in range.clone().step_by(PIECE) {
            let piece = at..(at + PIECE).min(range.end);
            let Some(old) = self.known(&piece).map(<[u8]>::to_vec) else { break };
            let (address, mut new) = (base.offset(at as u64), old.clone());
            // SAFETY: bytes of this function.
            let differs = unsafe {
                self.store.fetch(self.home, address, new.as_mut_ptr(), new.len(), Some(seed))
            }?;
            if !differs || new == old {
                continue;
            }
            self.moved.fetched += new.len() as u64;
            let unit = memory.unit();
            for (index, (new, old)) in
                new.chunks(page_bytes() as usize).zip(old.chunks(page_bytes() as usize)).enumerate()
            {
                if new == old {
                    continue;
                }
                let from = at + index * page_bytes() as usize;
                changed.push(from / page_bytes() as usize);
                let words = new.chunks(unit).zip(old.chunks(unit)).enumerate();
                for (word, (new, _)) in words.filter(|(_, (new, old))| new != old) {
                    memory.write(from + word * unit, new);
                }
            }
            self.learn(at, &new);
        }
        self.newer.set(pages, false);
        Ok(changed)
    }

    /// Sends the server what it lacks of pages. If none of its work runs, it changes nothing that
    /// lies between what is sent.
    pub(super) fn give(
        &mut self,
        base: UnifiedPtr,
        (memory, all): (&Memory, usize),
        pages: &Range<usize>,
        works: bool,
    ) -> Result<()> {
        let range = bytes(pages, all);
        for at in range.clone().step_by(PIECE) {
            let piece = at..(at + PIECE).min(range.end);
            let new = memory.read(&piece);
            let Some(old) = self.known(&piece) else { break };
            if new == old {
                continue;
            }
            let address = base.offset(at as u64);
            let mut sent = 0;
            if memory.is_protectable() && self.home.kind == Kind::Mapped {
                for Stretch { from, mask, data } in stretches(old, &new, PIECE) {
                    self.store.patch(self.home, address.offset(from as u64), &mask, data)?;
                    sent += data.len() as u64;
                }
            } else {
                for run in runs(old, &new, address, if works { 0 } else { GAP }) {
                    let (to, data) = (address.offset(run.start as u64), &new[run]);
                    // SAFETY: bytes of this function.
                    unsafe { self.store.push(self.home, to, data.as_ptr(), data.len()) }?;
                    sent += data.len() as u64;
                }
            }
            self.is_sent = true;
            self.moved.pushed += sent;
            self.learn(at, &new);
        }
        self.older.set(pages, false);
        Ok(())
    }

    /// Waits until the server has what was sent to it.
    pub(super) fn settle(&mut self, base: UnifiedPtr) -> Result<()> {
        if !std::mem::take(&mut self.is_sent) {
            return Ok(());
        }
        match self.home.kind {
            Kind::Managed => self.store.settle(self.home.ctx),
            // The server takes commands in order.
            Kind::Mapped => {
                let mut byte = 0u8;
                // SAFETY: a byte of this function.
                unsafe { self.store.fetch(self.home, base, &raw mut byte, 1, None) }.map(drop)
            }
        }
    }
}
