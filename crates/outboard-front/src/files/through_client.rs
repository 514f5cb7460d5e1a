//! Transfers through this process: the file is read and written here, and its bytes are copied to
//! and from the device as the program's own are. While one piece is copied, the next one is read or
//! written.

use super::descriptor::Span;
use super::lane::Lane;
use super::pieces::{pull, push};
use super::{Failure, File, Memory, Outcome};
use crate::backend::Backend;
use crate::process::Process;

/// Reads into device memory; the bytes have arrived when this returns.
pub(super) fn read<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    to: &Memory,
    bytes: usize,
    offset: u64,
) -> Outcome {
    let lane = Lane::take(process, &to.here)?;
    let fill = |piece: &mut [u8], at: usize| {
        // SAFETY: the piece is the caller's own, and plain bytes.
        unsafe { file.read_at(Span::of(piece), offset + at as u64) }
    };
    let drain = |piece: &[u8], at: usize| {
        lane.upload(to.address.offset(at as u64), piece)?;
        Ok(piece.len())
    };
    let (moved, failure) = pull(&process.files.buffers, bytes, fill, drain);
    lane.finish()?;
    outcome(moved, failure)
}

/// Writes device memory. `in_order`: after what the program has queued in the default stream.
pub(super) fn write<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    (from, in_order): (&Memory, bool),
    bytes: usize,
    offset: u64,
) -> Outcome {
    let lane = Lane::take(process, &from.here)?;
    if in_order {
        lane.follow_default()?;
    }
    let fill = |piece: &mut [u8], at: usize| {
        lane.download(from.address.offset(at as u64), piece)?;
        Ok(piece.len())
    };
    let drain = |piece: &[u8], at: usize| file.write_at(Span::of(piece), offset + at as u64);
    let (moved, failure) = push(&process.files.buffers, bytes, fill, drain);
    outcome(moved, failure)
}

/// What a transfer gives that has moved so many bytes before it failed: an error of the file behind
/// some bytes is met by the next transfer.
fn outcome(moved: usize, failure: Option<Failure>) -> Outcome {
    match failure {
        Some(failure @ Failure::Device(_)) => Err(failure),
        Some(failure) if moved == 0 => Err(failure),
        _ => Ok(moved),
    }
}
