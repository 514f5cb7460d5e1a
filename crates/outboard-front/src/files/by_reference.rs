//! Transfers of files that a server has as well: it reads and writes them itself, and this process
//! sends their names.
//!
//! A server opens a file at its first transfer with memory there, once this process has shown that
//! it can read the file; one on this machine gets the descriptor. What a server does not open, or
//! finds changed later, goes through this process.

use std::os::fd::AsFd;

use outboard_abi::CUresult;
use outboard_files::{Block, Challenge, Identity, Reference, answer, forget, is_on_this_machine};
use outboard_wire::files::{FileChallenge, FileOpening, FileReference};

use super::lane::Lane;
use super::{Failure, File, Memory, Outcome, descriptor};
use crate::backend::{Backend, ContextId, ObjectId};
use crate::parts::files::Standing;
use crate::process::Process;

/// A file is named anew so often after it has changed.
const MOST_OPENINGS: u32 = 8;

/// Whether the memory's server has the file.
pub(super) fn serves<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    memory: &Memory,
) -> bool {
    standing(process, file, memory).is_some()
}

/// Reads into device memory; `None` if that must go through this process.
pub(super) fn read<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    to: &Memory,
    bytes: usize,
    offset: u64,
) -> Option<Outcome> {
    if bytes == 0 {
        return None;
    }
    let opened = standing(process, file, to)?;
    let (name, ctx) = (opened.written_down(file)?, to.here.id);
    let moved = process.backend.file_read(ctx, name, offset, bytes as u64, to.address);
    judge(process, file, to, bytes, moved)
}

/// Writes device memory; `None` likewise. `in_order`: after what the program has queued in the
/// default stream.
pub(super) fn write<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    (from, in_order): (&Memory, bool),
    bytes: usize,
    offset: u64,
) -> Option<Outcome> {
    if bytes == 0 {
        return None;
    }
    let opened = standing(process, file, from)?;
    let (name, ctx) = (opened.written_down(file)?, from.here.id);
    if in_order {
        let behind = Lane::take(process, &from.here).and_then(|lane| {
            lane.follow_default()?;
            lane.finish()
        });
        if let Err(error) = behind {
            return Some(Err(error.into()));
        }
    }
    let moved = process.backend.file_write(ctx, name, offset, bytes as u64, from.address);
    let outcome = judge(process, file, from, bytes, moved);
    if let (Opened::Named(_), Some(Ok(moved))) = (opened, &outcome) {
        forget(&file.descriptor, offset, *moved as u64);
        ask_anew(file);
    }
    outcome
}

/// Has servers write down what they have written; the error number of one that cannot.
pub(super) fn sync<B: Backend>(process: &'static Process<B>, file: &File) -> Result<(), i32> {
    let served = file.served.lock();
    for (ctx, name) in served.open() {
        match process.backend.file_sync(ctx, name) {
            Ok(0) => {}
            Ok(errno) => return Err(errno as i32),
            Err(_) => return Err(libc::EIO),
        }
    }
    Ok(())
}

/// Has servers close a file.
pub(super) fn close<B: Backend>(process: &'static Process<B>, file: &File) {
    for (ctx, name) in file.served.lock().open() {
        // Without the server, nothing is left to close.
        let _ = process.backend.file_close(ctx, name);
    }
}

/// What came of a transfer of so many bytes; `None` if it has to go through this process.
fn judge<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    memory: &Memory,
    bytes: usize,
    moved: Result<(u64, u32), CUresult>,
) -> Option<Outcome> {
    use CUresult as E;
    match moved {
        // What is left, the next transfer meets. No server moves more than it was asked for.
        Ok((moved, errno)) if moved > 0 || errno == 0 => Some(Ok(bytes.min(moved as usize))),
        Ok(_)
        | Err(
            E::CUDA_ERROR_NOT_SUPPORTED
            | E::CUDA_ERROR_INVALID_HANDLE
            | E::CUDA_ERROR_OUT_OF_MEMORY,
        ) => {
            // It has changed, or the server cannot do it: this process may.
            let is_silent = moved == Ok((0, libc::ETIMEDOUT as u32));
            if is_silent {
                process.files.note(SILENT.to_owned());
            }
            let mut served = file.served.lock();
            let standing = served.at(memory.here.id);
            let (name, then) = match *standing {
                Standing::Open(name, openings) if !is_silent => (name, Standing::Closed(openings)),
                Standing::Open(name, _) | Standing::Given(name) => (name, Standing::Never),
                Standing::Closed(_) | Standing::Never => return None,
            };
            *standing = then;
            drop(served);
            let _ = process.backend.file_close(memory.here.id, name);
            ask_anew(file);
            None
        }
        Err(error) => Some(memory.here.note(Err(error)).map_err(Failure::Device)),
    }
}

/// Has the kernel ask the file's server anew, if there is one: then the program sees what has been
/// written, and the size that the file has now.
fn ask_anew(file: &File) {
    if !is_on_this_machine(&file.descriptor) {
        let _ = Identity::of(&file.descriptor);
    }
}

/// By which name a server has a file open.
#[derive(Clone, Copy)]
enum Opened {
    /// It was handed this process's descriptor.
    Given(ObjectId),
    /// It has opened it by itself.
    Named(ObjectId),
}

impl Opened {
    /// The name, once the file's server has what this process has written. Until then, a server of
    /// devices that has opened the file by itself does not see it, and it could be written over
    /// what such a server writes.
    fn written_down(self, file: &File) -> Option<ObjectId> {
        match self {
            Opened::Given(name) => Some(name),
            Opened::Named(name) => {
                let is_written = !file.writable
                    || is_on_this_machine(&file.descriptor)
                    || descriptor::sync(&file.descriptor).is_ok();
                is_written.then_some(name)
            }
        }
    }
}

/// How the memory's server has the file open, if it has.
fn standing<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    memory: &Memory,
) -> Option<Opened> {
    if !memory.plain {
        return None;
    }
    let ctx = memory.here.id;
    let mut served = file.served.lock();
    let standing = served.at(ctx);
    let openings = match *standing {
        Standing::Open(name, _) => return Some(Opened::Named(name)),
        Standing::Given(name) => return Some(Opened::Given(name)),
        Standing::Closed(openings) if openings < MOST_OPENINGS => openings,
        Standing::Closed(_) | Standing::Never => return None,
    };
    if let Ok(name) = give(process, file, ctx) {
        *standing = Standing::Given(name);
        return Some(Opened::Given(name));
    }
    let opened = match process.files.shares_none(ctx) {
        true => Err(NO_FILES.to_owned()),
        false => open(process, file, ctx),
    };
    match opened {
        Ok(name) => {
            *standing = Standing::Open(name, openings + 1);
            Some(Opened::Named(name))
        }
        Err(reason) => {
            process.files.note(reason);
            *standing = Standing::Never;
            None
        }
    }
}

const NO_FILES: &str = "the server shares no files";
const SILENT: &str = "the server's file system does not answer";

/// Hands a context's server the descriptor, if it is on this machine.
fn give<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    ctx: ContextId,
) -> Result<ObjectId, CUresult> {
    let (name, reads) = (ObjectId(file.handle), descriptor::reads(&file.descriptor));
    let given = file.descriptor.as_fd();
    process.backend.file_give(ctx, name, given, reads, file.writable).map(|()| name)
}

/// Has a context's server open a file, or says why it does not.
fn open<B: Backend>(
    process: &'static Process<B>,
    file: &File,
    ctx: ContextId,
) -> Result<ObjectId, String> {
    let named = Reference::of(file.descriptor.as_fd()).map_err(|error| error.to_string())?;
    let Reference { source, path, identity, .. } = named;
    let reference = FileReference { source, path, identity: identity.into() };
    let (name, reads) = (ObjectId(file.handle), descriptor::reads(&file.descriptor));
    let backend = process.backend;
    let failed = |error: CUresult| format!("the server opens no files: CUDA error {}", error.0);
    match backend.file_open(ctx, name, &reference, reads, file.writable).map_err(failed)? {
        FileOpening::NothingShared {} => {
            process.files.note_none(ctx);
            Err(NO_FILES.to_owned())
        }
        FileOpening::Refused(reason) => Err(reason),
        FileOpening::Opened(challenge) => {
            let shown = show(file, challenge).and_then(|proof| {
                match backend.file_prove(ctx, name, &proof).map_err(failed)? {
                    None => Ok(name),
                    Some(reason) => Err(reason),
                }
            });
            shown.inspect_err(|_| {
                // Without the server, nothing is left to close.
                let _ = backend.file_close(ctx, name);
            })
        }
    }
}

/// The answer to what a server asks.
fn show(file: &File, challenge: FileChallenge) -> Result<[u8; 32], String> {
    let FileChallenge { key, blocks } = challenge;
    let blocks = blocks.into_iter().map(|(offset, bytes)| Block { offset, bytes }).collect();
    let challenge = Challenge::from_parts(key, blocks).map_err(|error| error.to_string())?;
    answer(&file.descriptor, &challenge).map_err(|error| error.to_string())
}
