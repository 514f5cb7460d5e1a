//! Memory that supervisor and workers share, and whose size can never change: else one of them
//! could take the ground from under the others.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

/// Makes so many bytes of zeros.
pub(crate) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, bytes as u64)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Checks that a worker has kept memory of that size for this: one gone wrong could have kept
/// something else.
pub(crate) fn check(memory: BorrowedFd<'_>, bytes: usize, what: &str) -> io::Result<()> {
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let fits = fcntl_get_seals(memory)?.contains(sealed)
        && usize::try_from(fstat(memory)?.st_size) == Ok(bytes);
    if fits {
        return Ok(());
    }
    let sentence = format!("what a worker has kept is not {what}");
    Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
}
