//! The system's pages.

use std::iter;
use std::ops::Range;
use std::ptr;

use rustix::system::sysinfo;

/// Bytes of a page: 4096 on x86-64; Arm's systems have 4, 16 or 64 KiB.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The parts of `bytes` from the page at `address` on that are in memory, in bytes from there: all,
/// if some may be elsewhere. In memory that no file on a disk has, the others are zeros.
#[must_use]
pub fn present(address: u64, bytes: usize) -> Vec<Range<usize>> {
    let page = page_bytes() as usize;
    let mut pages = vec![0_u8; bytes.div_ceil(page)];
    // SAFETY: the vector has a byte for each page; the system refuses addresses where nothing is.
    let asked = unsafe {
        libc::mincore(ptr::with_exposed_provenance_mut(address as usize), bytes, pages.as_mut_ptr())
    };
    let system = sysinfo();
    if asked != 0 || system.freeswap < system.totalswap {
        return iter::once(0..bytes).filter(|all| !all.is_empty()).collect();
    }
    let mut at = 0;
    let runs = pages.chunk_by(|one, next| (one ^ next) & 1 == 0).filter_map(|run| {
        let start = at;
        at += run.len() * page;
        (run[0] & 1 == 1).then_some(start..at.min(bytes))
    });
    runs.collect()
}
