//! Which addresses of a part of the arena are taken.

use outboard_ranges::{FreeRanges, RangeMap};

use super::{ALIGN, OutOfMemory};

/// A best-fit allocator over a range of addresses.
pub(super) struct Region {
    pub(super) total: u64,
    pub(super) used: u64,
    limit: u64,
    base: u64,
    /// What is allocated: the bytes asked for.
    pub(super) live: RangeMap<u64, ()>,
    pub(super) free: FreeRanges,
}

impl Region {
    pub(super) fn new(base: u64, limit: u64, total: u64) -> Region {
        let base = base.next_multiple_of(ALIGN);
        let mut free = FreeRanges::new();
        free.give(base, limit - base);
        Region { total, used: 0, limit, base, live: RangeMap::new(), free }
    }

    pub(super) fn alloc(&mut self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        let span = self.span_for(bytes)?;
        let address = self.free.take(span, align.max(ALIGN)).ok_or(self.error(bytes))?;
        self.took(address, bytes, span);
        Ok(address)
    }

    pub(super) fn alloc_at(&mut self, addr: u64, bytes: u64) -> Result<u64, OutOfMemory> {
        let span = self.span_for(bytes)?;
        let inside = addr >= self.base && addr < self.limit && addr.is_multiple_of(ALIGN);
        if !inside || !self.free.take_at(addr, span) {
            return Err(self.error(bytes));
        }
        self.took(addr, bytes, span);
        Ok(addr)
    }

    /// Address space for `bytes`: rounded up, and a guard behind it.
    fn span_for(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        let rounded = bytes.checked_next_multiple_of(ALIGN).ok_or(self.error(bytes))?;
        if rounded > self.total - self.used {
            return Err(self.error(bytes));
        }
        Ok(rounded + ALIGN)
    }

    pub(super) fn error(&self, requested: u64) -> OutOfMemory {
        OutOfMemory { requested, free: self.total - self.used, total: self.total }
    }

    fn took(&mut self, address: u64, bytes: u64, span: u64) {
        self.used += span - ALIGN;
        self.live.insert(address, bytes, ());
    }

    pub(super) fn free(&mut self, addr: u64) {
        let Some((bytes, ())) = self.live.remove(addr) else { return };
        let rounded = bytes.next_multiple_of(ALIGN);
        self.used -= rounded;
        self.free.give(addr, rounded + ALIGN);
    }
}
