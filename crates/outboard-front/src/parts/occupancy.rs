//! Occupancy: how many blocks of a kernel fit on a multiprocessor.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::backend::Result;

/// Answered queries about the occupancy of one function.
#[derive(Debug, Default)]
pub(crate) struct Answers(ArcSwap<Vec<(Question, i64)>>);

/// Queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// Blocks of so many threads, with so many bytes of dynamic shared memory, that fit on a
    /// multiprocessor.
    Blocks { block: u32, shared: u64, flags: u32 },
    /// Bytes of dynamic shared memory that so many blocks of so many threads can have.
    DynamicShared { blocks: i32, block: i32 },
    /// Clusters of a launch that fit on the device, or how large one may be.
    Clusters { shape: Box<Shape>, largest: bool },
}

/// What a launch looks like: grid, block, dynamic shared memory, whether it is cooperative,
/// attributes.
pub(crate) type Shape = ([u32; 3], [u32; 3], u32, bool, Vec<(u32, [u8; 64])>);

impl Answers {
    /// Answers that are kept; a search for the best block size asks a few dozen times.
    const MOST_ANSWERS: usize = 64;

    pub(crate) fn get(
        &self,
        question: &Question,
        ask: impl FnOnce() -> Result<i64>,
    ) -> Result<i64> {
        let known = self.0.load();
        if let Some((_, answer)) = known.iter().find(|(asked, _)| asked == question) {
            return Ok(*answer);
        }
        drop(known);
        // Answers that are forgotten meanwhile must not be stored again: only then has the list
        // another address.
        let known = self.0.load_full();
        let answer = ask()?;
        let kept = if known.len() >= Self::MOST_ANSWERS { &[] } else { known.as_slice() };
        let all = kept.iter().cloned().chain([(question.clone(), answer)]).collect();
        self.0.compare_and_swap(&known, Arc::new(all));
        Ok(answer)
    }

    /// The function's attributes have changed, and its occupancy with them.
    pub(crate) fn forget(&self) {
        self.0.store(Arc::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_abi::CUresult;

    #[test]
    fn answers_are_kept_until_attributes_change() {
        let answers = Answers::default();
        let blocks = |block, shared| Question::Blocks { block, shared, flags: 0 };
        assert_eq!(answers.get(&blocks(128, 0), || Ok(16)), Ok(16));
        assert_eq!(answers.get(&blocks(128, 0), || Ok(1)), Ok(16));
        assert_eq!(
            answers.get(&blocks(128, 1), || Err(CUresult::CUDA_ERROR_INVALID_VALUE)).ok(),
            None
        );
        assert_eq!(answers.get(&blocks(128, 1), || Ok(8)), Ok(8), "errors are not kept");
        let clusters = |grid, largest| {
            let shape = Box::new(([grid, 1, 1], [128, 1, 1], 0, false, vec![(4, [1; 64])]));
            Question::Clusters { shape, largest }
        };
        assert_eq!(answers.get(&clusters(8, false), || Ok(66)), Ok(66));
        assert_eq!(answers.get(&clusters(8, true), || Ok(16)), Ok(16));
        assert_eq!(answers.get(&clusters(8, false), || Ok(0)), Ok(66));
        for block in 0..1000 {
            assert_eq!(answers.get(&blocks(block, 7), || Ok(block.into())), Ok(block.into()));
        }
        answers.forget();
        assert_eq!(answers.get(&blocks(128, 0), || Ok(2)), Ok(2));
    }
}
