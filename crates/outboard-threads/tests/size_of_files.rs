//! Writes under a limit on the size of files: a process of its own, since the limit is a process's.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::FromRawFd as _;

use outboard_threads::writing;

/// Without `writing` the first write would end this process.
#[test]
fn a_file_that_may_not_grow_ends_nobody() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process; a new descriptor, which the file owns.
    let mut file = unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none), 0);
        File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC))
    };
    for _ in 0..3 {
        let error = writing(|| file.write_all(b"text")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    }
    let mut pending = std::mem::MaybeUninit::uninit();
    // SAFETY: the set is written.
    let left = unsafe {
        assert_eq!(libc::sigpending(pending.as_mut_ptr()), 0);
        libc::sigismember(pending.as_ptr(), libc::SIGXFSZ)
    };
    assert_eq!(left, 0, "nothing is left for the program's next system call");
}
