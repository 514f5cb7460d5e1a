//! Waiting for and writing values in memory, in a stream's order.

use outboard_abi::CUstream;

use crate::backend::{Backend, MemoryOperation, Result};
use crate::border::require;
use crate::capture;
use crate::memory_operations::{WRITE_FLAGS, Word, check_wait};
use crate::process::Process;
use crate::stream::find;

pub(crate) fn wait<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    word: Word,
    flags: u32,
) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    check_wait(&here, flags)?;
    let address = word.address(process, here.id)?;
    let node = || MemoryOperation::Wait { address, value: word.value, wide: word.wide, flags };
    if let Some(outcome) = capture::memory_operation(process, &here, stream, node) {
        return outcome;
    }
    here.note(
        process.backend.stream_wait_value(here.id, stream, address, word.value, word.wide, flags),
    )
}

pub(crate) fn write<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    word: Word,
    flags: u32,
) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    require(flags & !WRITE_FLAGS == 0)?;
    let address = word.address(process, here.id)?;
    let node = || MemoryOperation::Write { address, value: word.value, wide: word.wide, flags };
    if let Some(outcome) = capture::memory_operation(process, &here, stream, node) {
        return outcome;
    }
    here.note(
        process.backend.stream_write_value(here.id, stream, address, word.value, word.wide, flags),
    )
}
