//! Copies to the device from memory that is a file's: the server reads the file itself.
//!
//! Off unless `OUTBOARD_FILES=mapped` (`outboard run --files`). The memory is a mapping of which
//! the program has written nothing (`mappings`), or has the bytes of a tensor (`tensors`). Nothing
//! is tracked: a copy from memory that is anything else, or of a file that the server does not
//! have, is made as ever.

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use outboard_ranges::{Mapping, own_mappings};

use super::mappings::{is_untouched, mapping_of, open_file};
use super::{File, Memory, by_reference, open, tensors};
use crate::backend::{Backend, Extent, StreamId, UnifiedPtr};
use crate::capture;
use crate::context::Here;
use crate::copy::{Copy, Operand};
use crate::memory::{Found, check_found, find};
use crate::parts::memory::Kind;
use crate::process::Process;

/// Smaller copies are not worth the questions.
pub(super) const LEAST: u64 = 4 << 20;
/// So many files are kept open.
const MOST_FILES: usize = 64;

/// Has the server read the bytes, if they are a file's and nothing of this context is under way
/// that the copy would have to wait for; whether it did.
pub(crate) fn upload<B: Backend>(
    process: &'static Process<B>,
    (here, stream): (&Here, StreamId),
    copy: &Copy,
) -> bool {
    if !process.files.maps() || process.files.shares_none(here.id) {
        return false;
    }
    let Some((to, from, bytes)) = row(copy).filter(|(.., bytes)| *bytes >= LEAST) else {
        return false;
    };
    let (Ok(count), Some(end)) = (usize::try_from(bytes), from.0.checked_add(bytes)) else {
        return false;
    };
    let is_plain = |found: &Found| {
        super::is_plain(found.2.kind) && check_found(process, found, to, bytes).is_ok()
    };
    if !find(process, to).as_ref().is_some_and(is_plain) {
        return false;
    }
    if capture::refuse(process, here, stream).is_err() {
        return false;
    }
    let idle = |stream| process.backend.stream_query(here.id, stream).is_ok();
    let is_idle = || idle(stream) && (stream == StreamId::LEGACY || idle(StreamId::LEGACY));
    let memory = Memory { here: here.clone(), address: to.device(), plain: true };
    let tensor = || tensors::find(process, &memory, from.0..end, is_idle);
    let found = match find(process, from) {
        None => mapped(process, &(from.0..end)).filter(|_| is_idle()).or_else(tensor),
        Some((_, _, allocation)) => match allocation.kind {
            Kind::HostAllocated(_) | Kind::HostRegistered(_) => tensor(),
            _ => None,
        },
    };
    let Some((file, offset)) = found else { return false };
    let read = by_reference::read(process, &file, &memory, count, offset);
    if read != Some(Ok(count)) {
        return false;
    }
    process.files.read.count(count, true);
    true
}

/// Destination, source and size of a copy of bytes that follow each other; no array's.
fn row(copy: &Copy) -> Option<(UnifiedPtr, UnifiedPtr, u64)> {
    let address = |operand: &Operand| match operand {
        Operand::Host(at) => Some(at.unified()),
        Operand::Device(at) => Some(at.unified()),
        Operand::Unified(at) => Some(*at),
        Operand::Array(_) => None,
    };
    let bytes = copy.extent.width;
    let is_row = copy.extent == Extent::row(bytes);
    let (to, from) = (address(&copy.dst.operand)?, address(&copy.src.operand)?);
    (is_row && copy.dst.at == (0, 0, 0) && copy.src.at == (0, 0, 0)).then_some((to, from, bytes))
}

/// The file that is mapped to these bytes, and where in it they are.
fn mapped<B: Backend>(
    process: &'static Process<B>,
    bytes: &Range<u64>,
) -> Option<(Arc<File>, u64)> {
    let mapping = mapping_of(own_mappings().ok()?, bytes)?;
    if !is_untouched(bytes)? {
        return None;
    }
    let offset = mapping.offset + (bytes.start - mapping.range.start);
    Some((kept(process, &mapping)?, offset))
}

/// The mapping's file, which stays open for further copies.
pub(super) fn kept<B: Backend>(
    process: &'static Process<B>,
    mapping: &Mapping,
) -> Option<Arc<File>> {
    let key = mapping.file?;
    let mut kept = process.files.mapped.lock();
    if let Some((_, file)) = kept.iter().find(|(known, _)| *known == key) {
        return Some(Arc::clone(file));
    }
    let descriptor = open_file(mapping)?;
    let handle = open(process, descriptor.as_raw_fd(), false).ok()?;
    let file = process.files.table.look(handle).map(|file| Arc::clone(&file))?;
    if kept.len() >= MOST_FILES {
        let (_, oldest) = kept.remove(0);
        if let Some(oldest) = process.files.table.remove(oldest.handle) {
            oldest.close(process);
        }
    }
    kept.push((key, Arc::clone(&file)));
    Some(file)
}
