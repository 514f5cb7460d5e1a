//! Sizes of chunks.

use outboard_session::chunks::{ChunkError, Cut, SHORT};

use super::super::error::LinkError;

/// A chunk size to begin with for a transfer of `len` bytes: small enough that its parts overlap,
/// large enough to be worth the work for each. Those of [short](SHORT) transfers are so small that
/// the thread that has them sends them itself.
pub fn suggested_chunk(len: u64) -> u32 {
    const SMALLEST: u64 = 256 << 10;
    const LARGEST: u64 = 2 << 20;
    match len {
        ..=SHORT => 128 << 10,
        _ => (len / 8).next_power_of_two().clamp(SMALLEST, LARGEST) as u32,
    }
}

/// The smallest chunk size for a transfer of `len` bytes while others go the same way, in bytes:
/// the lanes are busy with those, so that its own parts need not overlap, and each chunk costs both
/// sides time. Long transfers keep the size that was found best for them.
pub(super) fn overlapping_chunk(len: u64) -> u32 {
    const ONE_CHUNK: u64 = 1 << 20;
    const LONG: u64 = 8 << 20;
    if len <= LONG { len.next_power_of_two().min(ONE_CHUNK) as u32 } else { 0 }
}

pub(in super::super) fn cut(len: u64, chunk: u32) -> Result<Cut, LinkError> {
    match Cut::new(len, chunk) {
        Ok(cut) if !cut.is_empty() => Ok(cut),
        Ok(_) => Err(LinkError::Transfer(ChunkError::Cut { len, chunk })),
        Err(error) => Err(LinkError::Transfer(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_transfers_that_overlap_are_one_chunk() {
        for (len, chunk) in [
            (100 << 10, 128 << 10),
            (256 << 10, 256 << 10),
            (1 << 20, 1 << 20),
            (8 << 20, 1 << 20),
            ((8 << 20) + 1, 0),
        ] {
            assert_eq!(overlapping_chunk(len), chunk, "{len}");
        }
    }
}
