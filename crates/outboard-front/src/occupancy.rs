//! Occupancy: how many blocks of a kernel fit on a multiprocessor.

use crate::backend::{Backend, Result};
use crate::border::require;
use crate::function::Function;
use crate::parts::occupancy::Question;
use crate::process::Process;

/// Blocks that fit on a multiprocessor. Libraries ask the same again and again, so answers are kept
/// with the function.
pub(crate) fn blocks<B: Backend>(
    process: &'static Process<B>,
    function: &Function,
    block: u32,
    shared: usize,
    flags: u32,
) -> Result<i32> {
    let here = function.live()?;
    require(block > 0 && flags & !1 == 0)?;
    let ask = || {
        here.note(process.backend.occupancy(here.id, function.id(), block, shared as u64, flags))
            .map(i64::from)
    };
    let question = Question::Blocks { block, shared: shared as u64, flags };
    Ok(function.answers.get(&question, ask)? as i32)
}
