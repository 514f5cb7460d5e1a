//! Whether mapped memory is as the client knows it, by sums.

use outboard_abi::CUresult;
use outboard_wire::UnifiedPtr;
use outboard_wire::limits::MAX_COMPARED;
use outboard_wire::sum::Sum;

use super::{INVALID, Mapped};

/// Bytes that are copied, and looked at, at once.
const PIECE: usize = 4096;

impl Mapped {
    /// The sum of the bytes as they are now.
    pub(crate) fn sum(&self, address: u64, bytes: usize, seed: u64) -> Result<u64, CUresult> {
        self.check(address, bytes)?;
        let mut sum = Sum::new(seed);
        let mut copy = [0; PIECE];
        for at in (0..bytes).step_by(PIECE) {
            let piece = &mut copy[..(bytes - at).min(PIECE)];
            let from = (address + at as u64) as *const u8;
            // SAFETY: checked to lie in pages of ours. Kernels may write to them meanwhile, so that
            // a copy is looked at.
            unsafe { core::ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), piece.len()) };
            sum.add(piece);
        }
        Ok(sum.finish())
    }

    /// Of several places, each with a sum, whether it is that of their bytes now.
    pub(crate) fn compare(
        &self,
        seed: u64,
        known: &[(UnifiedPtr, u32, u64)],
    ) -> Result<Vec<bool>, CUresult> {
        let total: u64 = known.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum();
        if total > MAX_COMPARED as u64 {
            return Err(INVALID);
        }
        let same = |(address, bytes, sum): &(UnifiedPtr, u32, u64)| {
            self.sum(address.0, *bytes as usize, seed).map(|now| now == *sum)
        };
        known.iter().map(same).collect()
    }
}

#[cfg(test)]
mod tests {
    use outboard_wire::ContextId;
    use outboard_wire::sum::sum;

    use super::*;

    #[test]
    fn only_open_memory_is_compared_and_not_too_much_of_it() {
        let memory = vec![5u8; 3 * PIECE];
        let (address, bytes) = (memory.as_ptr() as u64, memory.len() as u32);
        let mut mapped = Mapped::default();
        mapped.open.insert(address, u64::from(bytes), ContextId(1));
        let (place, right) = (UnifiedPtr(address), sum(9, &memory));
        assert_eq!(
            mapped.compare(9, &[(place, bytes, right), (place, bytes, right ^ 1)]),
            Ok(vec![true, false])
        );
        assert_eq!(mapped.compare(8, &[(place, bytes, right)]), Ok(vec![false]));
        assert_eq!(mapped.compare(9, &[(place, bytes - 1, sum(9, &memory[1..]))]), Ok(vec![true]));
        for (address, bytes, times) in
            [(address, bytes + 1, 1), (address - 1, 1, 1), (address, bytes, 400)]
        {
            assert!(
                mapped.compare(9, &vec![(UnifiedPtr(address), bytes, 0); times]).is_err(),
                "{address:#x} {bytes}"
            );
        }
    }
}
