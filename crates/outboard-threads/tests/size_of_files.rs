//! Writes under a limit on the size of files: a process of its own, since the limit is a process's.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::FromRawFd as _;

use outboard_threads::writing;

/// Sets the limit of this process; it can be lifted again.
fn limit(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

/// Without `writing` the first write would end this process.
#[test]
fn a_file_that_may_not_grow_ends_nobody() {
    // SAFETY: a new descriptor, which the file owns.
    let mut file =
        unsafe { File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
    limit(0);
    let written: [_; 3] = std::array::from_fn(|_| writing(|| file.write_all(b"text")));
    let mut pending = std::mem::MaybeUninit::uninit();
    // SAFETY: the set is written.
    let left = unsafe {
        assert_eq!(libc::sigpending(pending.as_mut_ptr()), 0);
        libc::sigismember(pending.as_ptr(), libc::SIGXFSZ)
    };
    // The result of this test may go to a file, too.
    limit(libc::RLIM_INFINITY);
    for outcome in written {
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EFBIG));
    }
    assert_eq!(left, 0, "nothing is left for the program's next system call");
}
