//! The system's pages.

/// Bytes of a page: 4096 on x86-64; Arm's systems have 4, 16 or 64 KiB.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}
