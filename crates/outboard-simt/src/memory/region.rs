//! Which addresses of a part of the arena are taken.

use std::collections::{BTreeMap, BTreeSet};

use super::{ALIGN, OutOfMemory};

pub(super) struct Live {
    pub(super) bytes: u64,
    /// Bytes of address space taken: whole alignment units and the guard.
    span: u64,
}

/// A best-fit allocator over a range of addresses.
pub(super) struct Region {
    pub(super) total: u64,
    pub(super) used: u64,
    limit: u64,
    base: u64,
    pub(super) live: BTreeMap<u64, Live>,
    pub(super) free: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Region {
    pub(super) fn new(base: u64, limit: u64, total: u64) -> Region {
        let base = base.next_multiple_of(ALIGN);
        let mut region = Region {
            total,
            used: 0,
            limit,
            base,
            live: BTreeMap::new(),
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
        };
        region.insert_free(base, limit - base);
        region
    }

    pub(super) fn alloc(&mut self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        let align = align.max(ALIGN);
        let span = self.span_for(bytes)?;
        let error = self.error(bytes);
        let found = self.by_size.range((span, 0)..).find_map(|&(len, start)| {
            let addr = start.checked_next_multiple_of(align)?;
            (addr + span <= start + len).then_some((start, len, addr))
        });
        let (start, len, addr) = found.ok_or(error)?;
        self.take(start, len, addr, bytes, span);
        Ok(addr)
    }

    pub(super) fn alloc_at(&mut self, addr: u64, bytes: u64) -> Result<u64, OutOfMemory> {
        let span = self.span_for(bytes)?;
        let error = self.error(bytes);
        if addr < self.base || addr >= self.limit || !addr.is_multiple_of(ALIGN) {
            return Err(error);
        }
        let (&start, &len) = self.free.range(..=addr).next_back().ok_or(error)?;
        if addr - start > len || span > len - (addr - start) {
            return Err(error);
        }
        self.take(start, len, addr, bytes, span);
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

    fn take(&mut self, start: u64, len: u64, addr: u64, bytes: u64, span: u64) {
        self.remove_free(start, len);
        if addr > start {
            self.insert_free(start, addr - start);
        }
        let (end, free_end) = (addr + span, start + len);
        if free_end > end {
            self.insert_free(end, free_end - end);
        }
        self.used += span - ALIGN;
        self.live.insert(addr, Live { bytes, span });
    }

    pub(super) fn free(&mut self, addr: u64) {
        let Some(live) = self.live.remove(&addr) else { return };
        self.used -= live.span - ALIGN;
        let (mut start, mut len) = (addr, live.span);
        if let Some((&before, &before_len)) = self.free.range(..addr).next_back()
            && before + before_len == addr
        {
            self.remove_free(before, before_len);
            start = before;
            len += before_len;
        }
        if let Some(&after_len) = self.free.get(&(start + len)) {
            self.remove_free(start + len, after_len);
            len += after_len;
        }
        self.insert_free(start, len);
    }

    fn insert_free(&mut self, start: u64, len: u64) {
        self.free.insert(start, len);
        self.by_size.insert((len, start));
    }

    fn remove_free(&mut self, start: u64, len: u64) {
        self.free.remove(&start);
        self.by_size.remove(&(len, start));
    }
}
