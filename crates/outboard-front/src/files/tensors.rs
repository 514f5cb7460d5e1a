//! Copies from memory into which the program has copied a tensor of a mapped file.
//!
//! safetensors 0.8 maps a file, copies each tensor into page-locked memory, and that to the device.
//! The file's header says where its tensors are. Memory of a tensor's length that has the tensor's
//! bytes, all of which are compared, is as good as the file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_ranges::{Mapping, own_mappings};

use super::descriptor::Span;
use super::mapped::{LEAST, kept};
use super::mappings::{is_of_file, open_file};
use super::{File, Memory, by_reference};
use crate::backend::Backend;
use crate::parts::tensors::Tensors;
use crate::process::Process;

/// Of so many files it is known where their tensors are.
const MOST_FILES: usize = 1024;
/// Tensors of one length that are looked at for a copy.
const MOST_TRIED: usize = 1024;
/// Bytes that tell most tensors apart.
const SAMPLE: usize = 4096;
/// Bytes of a file that are read at once.
const PIECE: usize = 256 << 10;

/// The mapped file that has a tensor with the bytes of this memory, and where in it that is, if the
/// server of the memory that it is for has the file and `is_idle` then says that nothing is under
/// way that the copy would have to wait for.
pub(super) fn find<B: Backend>(
    process: &'static Process<B>,
    to: &Memory,
    from: Range<u64>,
    is_idle: impl Fn() -> bool,
) -> Option<(Arc<File>, u64)> {
    let bytes = from.end - from.start;
    // SAFETY: the program has these bytes copied.
    let held = unsafe { std::slice::from_raw_parts(from.start as *const u8, bytes as usize) };
    for mapping in own_mappings().ok()?.filter(is_of_file) {
        if mapping.range.end - mapping.range.start < bytes {
            continue;
        }
        let tensors = tensors_of(process, &mapping)?;
        let mut numbers = tensors.of_length(bytes).take(MOST_TRIED).peekable();
        if numbers.peek().is_none() {
            continue;
        }
        let file = kept(process, &mapping)?;
        let read = |piece: &mut [u8], offset| {
            let span = Span { address: piece.as_mut_ptr() as u64, bytes: piece.len() };
            // SAFETY: the bytes of `piece`.
            unsafe { file.read_at(span, offset) == Ok(piece.len()) }
        };
        for number in numbers {
            let (offset, _) = tensors.places[number];
            if !has(read, offset, &held[..SAMPLE]) {
                continue;
            }
            if !by_reference::serves(process, &file, to) {
                break;
            }
            if !is_idle() {
                return None;
            }
            if has(read, offset, held) {
                tensors.next.store(number + 1, Ordering::Relaxed);
                return Some((file, offset));
            }
        }
    }
    None
}

/// Where the tensors of a mapped file are.
fn tensors_of<B: Backend>(process: &'static Process<B>, mapping: &Mapping) -> Option<Arc<Tensors>> {
    let key = mapping.file?;
    let mut known = process.files.tensors.lock();
    if let Some((_, tensors)) = known.iter().find(|(known, _)| *known == key) {
        return Some(Arc::clone(tensors));
    }
    let tensors = open_file(mapping).and_then(|file| Tensors::of(&file, LEAST)).unwrap_or_default();
    let tensors = Arc::new(tensors);
    if known.len() >= MOST_FILES {
        known.remove(0);
    }
    known.push((key, Arc::clone(&tensors)));
    Some(tensors)
}

/// Whether what `read` finds from the offset on is these bytes. It fills a buffer, or fails.
fn has(read: impl Fn(&mut [u8], u64) -> bool, offset: u64, bytes: &[u8]) -> bool {
    let mut piece = vec![0; PIECE.min(bytes.len())];
    bytes.chunks(PIECE).zip(0_u64..).all(|(expected, number)| {
        let piece = &mut piece[..expected.len()];
        read(piece, offset + number * PIECE as u64) && piece == expected
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_compared() {
        let mut bytes: Vec<u8> = (0..2 * PIECE + 100).map(|at| (at % 251) as u8).collect();
        let file = [b"before", &bytes[..]].concat();
        let read = |piece: &mut [u8], offset: u64| {
            let found = file.get(offset as usize..offset as usize + piece.len());
            found.map(|found| piece.copy_from_slice(found)).is_some()
        };
        assert!(has(read, 6, &bytes));
        assert!(!has(read, 5, &bytes));
        assert!(!has(read, 7, &bytes), "the file ends");
        *bytes.last_mut().unwrap() ^= 1;
        assert!(!has(read, 6, &bytes));
    }
}
