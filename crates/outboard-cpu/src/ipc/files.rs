//! The files behind tokens, for a process that passes them on by itself
//! ([`outboard_abi::own_tables::HandleFiles`]).

use core::ffi::c_int;
use std::os::fd::{BorrowedFd, IntoRawFd};

use outboard_abi::CUresult;
use outboard_abi::own_tables::HandleFiles;
use outboard_front::backend::{Result, Token};

use super::{EVENT, INVALID, MEMORY, Part};
use crate::offers::{self, Offer};

static TABLE: HandleFiles = HandleFiles { size: size_of::<HandleFiles>(), file_of, give };

/// The table. From now on this process opens no socket for what it offers.
pub(crate) fn handle_files() -> &'static HandleFiles {
    offers::open_no_socket();
    &TABLE
}

/// What a token of either kind offers.
fn offer_of(token: &Token) -> Result<Offer> {
    Part::decode(MEMORY, token).or_else(|_| Part::decode(EVENT, token)).map(|part| part.offer)
}

fn status(outcome: Result<()>) -> CUresult {
    outcome.err().unwrap_or(CUresult::CUDA_SUCCESS)
}

/// # Safety
/// `handle` is valid for reads, `out` for a write.
unsafe extern "C" fn file_of(handle: *const Token, out: *mut c_int) -> CUresult {
    // SAFETY: by the contract.
    let file = offer_of(unsafe { &*handle }).and_then(|offer| offers::file(&offer).ok_or(INVALID));
    // SAFETY: by the contract.
    status(file.map(|file| unsafe { out.write(file.into_raw_fd()) }))
}

/// # Safety
/// `handle` is valid for reads, `file` an open descriptor.
unsafe extern "C" fn give(handle: *const Token, file: c_int) -> CUresult {
    // SAFETY: by the contract.
    let (offer, file) = unsafe { (offer_of(&*handle), BorrowedFd::borrow_raw(file)) };
    status(offer.and_then(|offer| offers::give(offer, file)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

    use super::*;

    /// In the table of another process: this one does not open what it has made itself.
    fn of_another(token: &Token) -> Token {
        let part = Part::decode(MEMORY, token).unwrap();
        let process = part.offer.process + 1;
        Part { offer: Offer { process, ..part.offer }, ..part }.encode(MEMORY)
    }

    #[test]
    fn a_file_travels_beside_its_token() {
        let memory = outboard_simt::memory_file(8192).unwrap();
        let offer = offers::offer(memory.as_fd()).unwrap();
        let token = Part { offer, offset: 0, bytes: 8192 }.encode(MEMORY);
        let mut file = -1;
        // SAFETY: a token, and room for a descriptor.
        assert_eq!(unsafe { file_of(&raw const token, &raw mut file) }, CUresult::CUDA_SUCCESS);
        // SAFETY: it is the caller's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let theirs = of_another(&token);
        let opened = || Part::decode(MEMORY, &theirs).unwrap().open();
        assert!(opened().is_err(), "nobody has given it yet");
        // SAFETY: a token, and an open descriptor.
        let given = unsafe { give(&raw const theirs, file.as_raw_fd()) };
        assert_eq!(given, CUresult::CUDA_SUCCESS);
        let inode = |file: BorrowedFd<'_>| rustix::fs::fstat(file).unwrap().st_ino;
        assert_eq!(inode(opened().unwrap().as_fd()), inode(memory.as_fd()));
        assert!(opened().is_err(), "it was for one opening");
        // A token that nobody here has made, and bytes that are none.
        for token in [theirs, [7; 64]] {
            let mut file = -1;
            // SAFETY: bytes, and room for a descriptor.
            let asked = unsafe { file_of(&raw const token, &raw mut file) };
            assert_eq!((asked, file), (INVALID, -1));
        }
    }
}
