//! Images that a device refuses, and libraries that do not tell their callers.
//!
//! The call that loads an image returns the error, whichever way the image is loaded. Some callers
//! ignore it and go on with memory that no kernel has written: libraries of NVIDIA's, and programs
//! that launch by `kernel<<<…>>>()`, for which a runtime loads. For them, the next wait returns the
//! error as well. GPUs have code of their own in those libraries, so all of this is about software
//! devices.

use core::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering;

use outboard_abi::CUresult;

use crate::parts::context::Here;
use crate::process::Front;

/// Why a software device cannot run an image that a GPU may run.
const UNUSABLE: [CUresult; 3] = [
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_INVALID_PTX,
    CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
];

/// How the files are called of NVIDIA's libraries that launch kernels for their callers. cuFFT 11
/// to 13 has been seen to ignore what a load returned.
const LIBRARIES: [&[u8]; 8] = [
    b"libcublas",
    b"libcudnn",
    b"libcufft",
    b"libcurand",
    b"libcusolver",
    b"libcusparse",
    b"libcutensor",
    b"libnpp",
];

/// Who loads an image.
pub(crate) struct Caller {
    /// A runtime does, for a launch.
    pub(crate) is_runtime: bool,
    /// It has given a place for what is to be said of errors: a worker does, for its client, and
    /// tells that.
    pub(crate) has_log: bool,
}

/// To be called with the error that a load of an image is about to return, and why.
pub(crate) fn note(
    front: &'static Front,
    here: &Here,
    error: CUresult,
    why: &str,
    caller: &Caller,
) {
    if !UNUSABLE.contains(&error) || !here.device().is_ok_and(|device| device.is_software()) {
        return;
    }
    let drops = caller.is_runtime || is_called_by(&LIBRARIES);
    if drops {
        here.owe(error);
    }
    if drops || !caller.has_log {
        say_once(front, why);
    }
}

/// Says on standard error what an image lacks, once in a process.
fn say_once(front: &'static Front, what: &str) {
    if !what.is_empty() && !front.modules.said.swap(true, Ordering::Relaxed) {
        outboard_threads::say(what);
    }
}

/// Of the unwinder that panics use.
#[repr(C)]
struct Frame {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut Frame, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut Frame) -> usize;
}

/// The caller whose file's name is looked for.
struct Search<'a> {
    beginnings: &'a [&'a [u8]],
    found: bool,
    left: usize,
}

/// Frames that are looked at; beyond them is what called the library.
const MOST_FRAMES: usize = 256;

/// Whether a function of the calling thread's stack is in a file whose name begins so.
fn is_called_by(beginnings: &[&[u8]]) -> bool {
    let mut search = Search { beginnings, found: false, left: MOST_FRAMES };
    // SAFETY: the function takes the frames and the data for just this call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut search).cast()) };
    search.found
}

extern "C" fn visit(frame: *mut Frame, data: *mut c_void) -> c_int {
    // `_URC_NO_REASON` goes on; anything else ends the walk.
    const ON: c_int = 0;
    const END: c_int = 5;
    // SAFETY: what `is_called_by` passed.
    let search = unsafe { &mut *data.cast::<Search<'_>>() };
    // SAFETY: a frame of the unwinder's, during this call.
    let address = unsafe { _Unwind_GetIP(frame) };
    search.left -= 1;
    search.found = is_in(address, search.beginnings);
    if search.found || search.left == 0 { END } else { ON }
}

/// Whether the code at an address is in a file whose name begins so.
fn is_in(address: usize, beginnings: &[&[u8]]) -> bool {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for.
    let found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) } != 0;
    if !found || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the linker's string, which lives as long as the file is mapped.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_found_by_the_names_of_their_files() {
        let own = std::env::current_exe().unwrap();
        let own = own.file_name().unwrap().as_encoded_bytes();
        assert!(is_called_by(&[b"nobody", &own[..own.len() - 1]]));
        assert!(!is_called_by(&LIBRARIES));
        assert!(is_called_by(&[b"libc.so"]), "what began the thread is a caller, too");
    }
}
