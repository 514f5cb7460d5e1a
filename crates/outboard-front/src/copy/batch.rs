//! Copies in batches.

/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`: a hint.
pub(crate) const FLAGS: u32 = 1;
