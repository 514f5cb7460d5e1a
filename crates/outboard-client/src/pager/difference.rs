//! What the program has changed in a page that the device may write to, too.

/// Bytes of a word that two sides do not share.
const WORD: usize = 4;

/// The stretch of a page from the first to the last word that differs: where it starts, which of its words differ (bit by bit; none means
/// all), and the new bytes.
pub(super) fn difference<'a>(old: &[u8], new: &'a [u8]) -> Option<(usize, Vec<u8>, &'a [u8])> {
    if old == new {
        return None;
    }
    let differs = |word: usize| old[word * WORD..][..WORD] != new[word * WORD..][..WORD];
    let words = new.len() / WORD;
    let first = (0..words).find(|word| differs(*word))?;
    let last = (first..words).rfind(|word| differs(*word))?;
    let mut mask = vec![0u8; (last - first + 1).div_ceil(8)];
    let mut count = 0;
    for word in (first..=last).filter(|word| differs(*word)) {
        mask[(word - first) / 8] |= 1 << ((word - first) % 8);
        count += 1;
    }
    if count == last - first + 1 {
        mask.clear();
    }
    Some((first * WORD, mask, &new[first * WORD..(last + 1) * WORD]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_difference_makes_one_page_of_the_other(old in prop::collection::vec(0u8..3, 64), new in prop::collection::vec(0u8..3, 64)) {
            let mut patched = old.clone();
            if let Some((from, mask, data)) = difference(&old, &new) {
                for (index, word) in data.chunks(WORD).enumerate() {
                    if mask.is_empty() || mask[index / 8] >> (index % 8) & 1 == 1 {
                        let at = from + index * WORD;
                        prop_assert_ne!(&old[at..at + WORD], word, "what did not change is not sent");
                        patched[at..at + WORD].copy_from_slice(word);
                    }
                }
            }
            prop_assert_eq!(patched, new);
        }
    }
}
