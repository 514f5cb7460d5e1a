//! Transfers to and from host memory: the system reads and writes it directly.

use outboard_abi::CUresult;

use super::descriptor::Span;
use super::{Failure, File, Outcome};
use crate::backend::HostPtr;
use crate::parts::files::Buffers;

/// Reads into host memory.
pub(super) fn read(file: &File, to: HostPtr, shared: bool, bytes: usize, offset: u64) -> Outcome {
    // SAFETY: the program has given the memory for this.
    let outcome = unsafe { file.read_at(Span { address: to.0, bytes }, offset) };
    if !is_refused(outcome) {
        return outcome;
    }
    if !shared {
        return Err(Failure::Device(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    in_pieces(bytes, |piece, at| {
        // SAFETY: the piece is ours.
        let moved = unsafe { file.read_at(Span::of(piece), offset + at as u64) }?;
        // SAFETY: the memory is page-locked, of at least so many bytes, and the program has given
        // it for this. Touching it here, unlike in the system, brings its pages in.
        unsafe {
            let to = to.offset(at as u64).pointer::<u8>();
            core::ptr::copy_nonoverlapping(piece.as_ptr(), to, moved);
        }
        Ok(moved)
    })
}

/// Writes host memory.
pub(super) fn write(
    file: &File,
    from: HostPtr,
    shared: bool,
    bytes: usize,
    offset: u64,
) -> Outcome {
    let outcome = file.write_at(Span { address: from.0, bytes }, offset);
    if !is_refused(outcome) {
        return outcome;
    }
    if !shared {
        return Err(Failure::Device(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
    in_pieces(bytes, |piece, at| {
        // SAFETY: as in `read`.
        unsafe {
            let from = from.offset(at as u64).pointer::<u8>();
            core::ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), piece.len());
        }
        file.write_at(Span::of(piece), offset + at as u64)
    })
}

/// Whether the system could not touch the memory: there is none, or its pages move when the program
/// touches them.
fn is_refused(outcome: Outcome) -> bool {
    outcome == Err(Failure::File(libc::EFAULT))
}

/// Moves bytes by pieces of our own, until one is not moved whole.
fn in_pieces(bytes: usize, mut step: impl FnMut(&mut [u8], usize) -> Outcome) -> Outcome {
    let mut piece = vec![0; bytes.min(Buffers::BYTES)];
    let mut moved = 0;
    while moved < bytes {
        let len = piece.len().min(bytes - moved);
        match step(&mut piece[..len], moved) {
            Ok(more) => {
                moved += more;
                if more < len {
                    break;
                }
            }
            Err(_) if moved > 0 => break,
            Err(failure) => return Err(failure),
        }
    }
    Ok(moved)
}
