//! Sums by which two processes find out that they hold the same bytes, without sending them.
//!
//! Different bytes have the same sum by chance only, once in 2^64 times: whoever chooses bytes does
//! not know the seed.

const LANES: usize = 4;
const WORD: usize = 8;
/// Bytes that are added at once: two words for each lane.
const BLOCK: usize = LANES * 2 * WORD;

/// The sum of bytes that are added one piece after the other.
#[derive(Clone, Debug)]
pub struct Sum {
    keys: [u64; LANES],
    lanes: [u64; LANES],
    bytes: u64,
}

/// Both halves of the product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Sum {
    /// The sum of nothing. Sums can be compared if they have the same seed, a random number.
    pub fn new(seed: u64) -> Sum {
        let mut state = seed;
        // SplitMix64.
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        Sum { keys: [(); LANES].map(|()| next()), lanes: [(); LANES].map(|()| next()), bytes: 0 }
    }

    /// Adds a piece. All but the last are multiples of 64 bytes.
    pub fn add(&mut self, piece: &[u8]) {
        let (blocks, rest) = piece.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| self.add_block(block));
        if !rest.is_empty() {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            self.add_block(&block);
        }
        self.bytes += piece.len() as u64;
    }

    fn add_block(&mut self, block: &[u8; BLOCK]) {
        for ((lane, key), words) in
            self.lanes.iter_mut().zip(self.keys).zip(block.as_chunks::<{ 2 * WORD }>().0)
        {
            let words = u128::from_le_bytes(*words);
            *lane = fold(words as u64 ^ key, (words >> 64) as u64 ^ *lane);
        }
    }

    /// The sum of all pieces.
    pub fn finish(&self) -> u64 {
        let whole = self
            .lanes
            .iter()
            .zip(self.keys)
            .fold(self.bytes, |sum, (lane, key)| fold(sum ^ key, *lane) ^ lane);
        fold(whole ^ self.keys[0], self.keys[1])
    }
}

/// The sum of bytes that lie together.
pub fn sum(seed: u64, bytes: &[u8]) -> u64 {
    let mut sum = Sum::new(seed);
    sum.add(bytes);
    sum.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pieces_have_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|at| (at * at) as u8).collect();
        let mut pieces = Sum::new(7);
        bytes.chunks(192).for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.finish(), sum(7, &bytes));
        assert_ne!(sum(8, &bytes), sum(7, &bytes));
    }

    #[test]
    fn whatever_differs_has_another_sum() {
        let bytes = vec![0u8; 4096];
        let mut sums = BTreeSet::from([sum(1, &bytes), sum(1, &bytes[1..]), sum(1, &[])]);
        // Miri takes minutes for all of them.
        let step = if cfg!(miri) { 997 } else { 1 };
        for bit in (0..8 * bytes.len()).step_by(step) {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(sums.insert(sum(1, &other)), "bit {bit}");
        }
        // The same blocks in another order.
        let mut blocks = [[1u8; 64], [2; 64], [3; 64]];
        assert!(sums.insert(sum(1, blocks.as_flattened())));
        blocks.swap(0, 2);
        assert!(sums.insert(sum(1, blocks.as_flattened())));
    }
}
