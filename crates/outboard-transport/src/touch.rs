//! Memory whose pages are closed until a thread touches them, as a handler for SIGSEGV opens them:
//! system calls do not touch it, but fail.

use std::io;

use rustix::io::Errno;

const PAGE: usize = 4096;
/// What is touched before a call is made again. Pages may be closed again meanwhile, so less is
/// better.
const AT_ONCE: usize = 64 * PAGE;

/// Whether a call has failed since memory was closed.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::FAULT.raw_os_error())
}

/// An index in each page of the first bytes.
fn places(bytes: usize, base: usize) -> impl Iterator<Item = usize> {
    let bytes = bytes.min(AT_ONCE);
    std::iter::successors(Some(0), move |at| Some(at + PAGE - (base + at) % PAGE))
        .take_while(move |at| *at < bytes)
}

/// Opens the first bytes for reading.
pub(crate) fn to_read(bytes: &[u8]) {
    for at in places(bytes.len(), bytes.as_ptr() as usize) {
        // SAFETY: a byte of the slice.
        unsafe { bytes.as_ptr().add(at).read_volatile() };
    }
}

/// Opens the first bytes for writing.
pub(crate) fn to_write(bytes: &mut [u8]) {
    let base = bytes.as_mut_ptr();
    for at in places(bytes.len(), base as usize) {
        // SAFETY: a byte of the slice, which nobody else writes to.
        unsafe { base.add(at).write_volatile(base.add(at).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_touched_once() {
        let all = |bytes, base| places(bytes, base).collect::<Vec<_>>();
        assert_eq!(all(1, 0), [0]);
        assert_eq!(all(PAGE + 1, 0), [0, PAGE]);
        assert_eq!(all(2 * PAGE, 100), [0, PAGE - 100, 2 * PAGE - 100]);
        assert_eq!(all(0, 100), Vec::<usize>::new());
        assert_eq!(all(usize::MAX / 2, 0).len(), AT_ONCE / PAGE);
        let mut bytes = vec![7; 3 * PAGE];
        to_read(&bytes);
        to_write(&mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
