//! Finds the words that the program has changed in memory that the device may also write to.

use std::ops::Range;

use outboard_wire::UnifiedPtr;

/// Bytes of a word that two sides do not share.
pub(super) const WORD: usize = 4;
/// Words that are compared at once. So many that did not change, where a stretch could go on, end
/// it: to send them would cost more than a message.
const BLOCK: usize = 64;
/// Words whose bits are in one byte of a mask.
const PER_BYTE: usize = 8;

/// Words from the first to the last that changed, few of those in between did not.
#[derive(Debug)]
pub(super) struct Stretch<'a> {
    /// Where it starts, in bytes.
    pub(super) from: usize,
    /// Which words are to be written, bit by bit; none means all.
    pub(super) mask: Vec<u8>,
    /// Their new bytes.
    pub(super) data: &'a [u8],
}

/// The stretches that differ, none of more than `most` bytes (a multiple of a block's), of whole
/// words.
pub(super) fn stretches<'a>(
    old: &'a [u8],
    new: &'a [u8],
    most: usize,
) -> impl Iterator<Item = Stretch<'a>> {
    let blocks = new.len().min(old.len()).div_ceil(BLOCK * WORD);
    let mut block = 0;
    std::iter::from_fn(move || {
        block += (block..blocks).position(|at| changed(old, new, at) != 0)?;
        let first = block;
        let mut bits = Vec::new();
        while block < blocks && (block - first + 1) * BLOCK * WORD <= most {
            match changed(old, new, block) {
                0 => break,
                words => bits.push(words),
            }
            block += 1;
        }
        Some(stretch(new, first, &bits))
    })
}

/// Bits of the words of a block that differ.
fn changed(old: &[u8], new: &[u8], block: usize) -> u64 {
    let from = block * BLOCK * WORD;
    let to = (from + BLOCK * WORD).min(new.len());
    let (old, new) = (&old[from..to], &new[from..to]);
    if old == new {
        return 0;
    }
    let words = old.as_chunks::<WORD>().0.iter().zip(new.as_chunks::<WORD>().0);
    words.enumerate().fold(0, |bits, (word, (old, new))| bits | u64::from(old != new) << word)
}

/// The stretch of blocks whose words differ as `bits` say: it starts where a byte of the mask does.
fn stretch<'a>(new: &'a [u8], first: usize, bits: &[u64]) -> Stretch<'a> {
    let (lead, tail) = (
        bits[0].trailing_zeros() as usize / PER_BYTE,
        bits[bits.len() - 1].leading_zeros() as usize,
    );
    let (from, to) = (first * BLOCK + lead * PER_BYTE, (first + bits.len()) * BLOCK - tail);
    let differ: u32 = bits.iter().map(|bits| bits.count_ones()).sum();
    let mut mask = Vec::new();
    if differ as usize != to - from {
        mask = bits.iter().flat_map(|bits| bits.to_le_bytes()).skip(lead).collect();
        mask.truncate((to - from).div_ceil(PER_BYTE));
    }
    Stretch { from: from * WORD, mask, data: &new[from * WORD..to * WORD] }
}

/// Runs of words that differ, with at most `gap` bytes between them that do not. The bytes begin at
/// `address`, and words are those of 4 bytes that memory has, of which the first and the last here
/// may be parts: a run for each byte that differs would be one for each number that a kernel counts
/// up.
pub(super) fn runs(old: &[u8], new: &[u8], address: UnifiedPtr, gap: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let all = old.len().min(new.len());
    let mut start = 0;
    while start < all {
        let word = WORD - (address.0 as usize + start) % WORD;
        let end = (start + word).min(all);
        if old[start..end] != new[start..end] {
            match runs.last_mut() {
                Some(run) if start - run.end <= gap => run.end = end,
                _ => runs.push(start..end),
            }
        }
        start = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: usize = 8 * BLOCK * WORD;

    /// Bytes of words that mostly, or seldom, differ from zeros.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![Just([0; WORD]), Just([0, 0, 1, 0])];
        prop::collection::vec((word, 1usize..100), 1..30).prop_map(|runs| {
            runs.into_iter().flat_map(|(word, times)| word.repeat(times)).collect()
        })
    }

    proptest! {
        #[test]
        fn what_differs_makes_one_of_the_other(old in bytes(), new in bytes()) {
            let len = old.len().min(new.len());
            let (old, new) = (&old[..len], &new[..len]);
            let mut patched = old.to_vec();
            for Stretch { from, mask, data } in stretches(old, new, MOST) {
                prop_assert!(data.len() <= MOST && (mask.is_empty() || mask.len() == data.len().div_ceil(WORD * PER_BYTE)));
                for (index, word) in data.chunks(WORD).enumerate() {
                    if mask.is_empty() || mask[index / PER_BYTE] >> (index % PER_BYTE) & 1 == 1 {
                        let at = from + index * WORD;
                        prop_assert_ne!(&old[at..at + WORD], word, "what did not change is not written");
                        patched[at..at + WORD].copy_from_slice(word);
                    }
                }
            }
            prop_assert_eq!(patched, new);
        }
    }

    #[test]
    fn what_changed_is_sent_in_one_piece_and_little_else() {
        let old = vec![0u8; 1 << 20];
        let all = vec![1u8; 1 << 20];
        let found: Vec<_> = stretches(&old, &all, 1 << 20).collect();
        assert!(found.len() == 1 && found[0].mask.is_empty() && found[0].data.len() == all.len());
        assert_eq!(
            stretches(&old, &all, 1 << 18).map(|stretch| stretch.from).collect::<Vec<_>>(),
            [0, 1 << 18, 2 << 18, 3 << 18]
        );
        let mut few = old.clone();
        (0..256).for_each(|page| few[page * 4096 + 52] = 1);
        let (messages, bytes) = stretches(&old, &few, 1 << 20)
            .fold((0, 0), |sum, it| (sum.0 + 1, sum.1 + it.data.len()));
        assert_eq!((messages, bytes), (256, 256 * 6 * WORD));
        assert_eq!(stretches(&old, &old, 1 << 20).count(), 0);
    }

    #[test]
    fn runs_differ_and_are_joined_over_gaps() {
        let (old, at) = ([0u8; 24], UnifiedPtr(4096));
        let mut new = old;
        [1, 2, 9, 23].iter().for_each(|byte| new[*byte] = 1);
        assert_eq!(runs(&old, &new, at, 0), [0..4, 8..12, 20..24]);
        assert_eq!(runs(&old, &new, at, 4), [0..12, 20..24]);
        assert!(runs(&old, &old, at, 9).is_empty());
    }

    fn only(run: Range<usize>) -> Vec<Range<usize>> {
        std::iter::once(run).collect()
    }

    #[test]
    fn words_that_follow_each_other_are_one_run_wherever_their_bytes_differ() {
        let old: Vec<u8> = (0..400u32).flat_map(u32::to_le_bytes).collect();
        let new: Vec<u8> = (0..400u32).flat_map(|word| (word + 1).to_le_bytes()).collect();
        assert_eq!(runs(&old, &new, UnifiedPtr(4096), 0), only(0..1600));
    }

    #[test]
    fn words_are_those_of_memory_also_where_it_begins_within_one() {
        let (old, at) = ([0u8; 9], UnifiedPtr(4099));
        let mut new = old;
        [0, 2].iter().for_each(|byte| new[*byte] = 1);
        assert_eq!(runs(&old, &new, at, 0), only(0..5));
        new[0] = 0;
        assert_eq!(runs(&old, &new, at, 0), only(1..5));
        new[8] = 1;
        assert_eq!(runs(&old, &new, at, 0), only(1..9));
    }
}
