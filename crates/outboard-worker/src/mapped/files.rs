//! Files of the client's program, whose pages the device uses directly.
//!
//! The program may change their sizes. A driver that locks pages keeps them; touching a page that
//! the file has lost ends this process, and with it this session alone.

use std::os::fd::BorrowedFd;

use outboard_abi::CUresult;
use outboard_driver::Table;
use outboard_wire::ContextId;
use rustix::fs::{FileType, fstat, fstatfs};

use super::{INVALID, Mapped, Pages, page_bytes, pages};

/// A file, and where in it addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    file: (u64, u64),
    /// To be added to an address.
    shift: u64,
}

impl Origin {
    pub(super) fn offset(self, address: u64) -> u64 {
        address.wrapping_add(self.shift)
    }
}

impl Mapped {
    /// Gives the device the pages of a file of the program under these addresses, from `offset` on,
    /// where that of the first byte is. The context is current.
    pub(crate) fn share_file(
        &mut self,
        table: &Table,
        ctx: ContextId,
        (address, bytes): (u64, u64),
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), CUresult> {
        let range = pages(address, bytes)?;
        let known = fstat(file).map_err(|_| INVALID)?;
        // Pages of files of other systems may move, or come from elsewhere when they are touched.
        let in_memory = fstatfs(file).is_ok_and(|system| system.f_type == libc::TMPFS_MAGIC);
        if !in_memory || FileType::from_raw_mode(known.st_mode) != FileType::RegularFile {
            return Err(INVALID);
        }
        let end = offset.checked_add(address - range.start + bytes).ok_or(INVALID)?;
        if !offset.is_multiple_of(page_bytes()) || end > known.st_size as u64 {
            return Err(INVALID);
        }
        let origin =
            Origin { file: (known.st_dev, known.st_ino), shift: offset.wrapping_sub(range.start) };
        self.add(table, ctx, address, bytes, Pages::OfProgram(file, origin)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};

    use super::super::Run;
    use super::*;

    /// The size of pages of the machines on which tests run.
    const PAGE: u64 = 4096;

    const ALREADY: CUresult = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    /// What comes of a function that the table lacks.
    const MISSING: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    /// A range without mappings: a test that tries to learns from what fails that all before it was
    /// in order.
    const AT: u64 = 0x6000_0000_0000;

    fn memfd(bytes: u64) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    }

    #[test]
    fn only_what_a_file_in_memory_has_is_mapped() {
        // SAFETY: no function is found, so that none is called.
        let table = unsafe { Table::load(|_| core::ptr::null()) };
        let mut mapped = Mapped::default();
        let file = memfd(3 * PAGE + 100);
        let mut share = |file: &OwnedFd, address, bytes, offset| {
            mapped.share_file(&table, ContextId(1), (address, bytes), file.as_fd(), offset)
        };
        // Only the driver is missing for these.
        assert_eq!(share(&file, AT, 3 * PAGE + 100, 0), Err(MISSING));
        assert_eq!(share(&file, AT + 50, 2 * PAGE + 50, PAGE), Err(MISSING));
        for (address, bytes, offset) in [
            (AT, 3 * PAGE + 101, 0),
            (AT + 51, 2 * PAGE + 50, PAGE),
            (AT, PAGE, 3 * PAGE),
            (AT, PAGE, 100),
            (AT, PAGE, u64::MAX - PAGE + 1),
            (AT, u64::MAX - AT, 0),
            (AT, 0, 0),
            (0, PAGE, 0),
        ] {
            assert_eq!(
                share(&file, address, bytes, offset),
                Err(INVALID),
                "{address:#x} {bytes:#x} {offset:#x}"
            );
        }
        let (end, _other) = rustix::pipe::pipe().unwrap();
        let zero = open("/dev/zero", OFlags::RDWR, Mode::empty()).unwrap();
        let program = open("/proc/self/exe", OFlags::RDONLY, Mode::empty()).unwrap();
        for other in [end, zero, program] {
            assert_eq!(share(&other, AT, 1, 0), Err(INVALID));
        }
    }

    #[test]
    fn a_page_is_one_memory_for_all() {
        // SAFETY: no function is found, so that none is called.
        let table = unsafe { Table::load(|_| core::ptr::null()) };
        let (file, other) = (memfd(4 * PAGE), memfd(4 * PAGE));
        let known = fstat(&file).unwrap();
        let origin = Origin { file: (known.st_dev, known.st_ino), shift: 0_u64.wrapping_sub(AT) };
        let mut mapped = Mapped::default();
        // The program's bytes are not ours to touch: an unused run is kept as it is.
        mapped.runs.insert(AT, Run { bytes: PAGE, users: 0, origin: Some(origin) });
        mapped.bytes = PAGE;
        let ctx = ContextId(1);
        assert_eq!(mapped.add(&table, ctx, AT, 10, Pages::Own), Err(ALREADY));
        assert_eq!(mapped.share_file(&table, ctx, (AT, 10), other.as_fd(), 0), Err(ALREADY));
        assert_eq!(mapped.share_file(&table, ctx, (AT, 10), file.as_fd(), PAGE), Err(ALREADY));
        mapped.share_file(&table, ctx, (AT, 10), file.as_fd(), 0).unwrap();
        mapped.share_file(&table, ctx, (AT + 10, 10), file.as_fd(), 0).unwrap();
        assert_eq!(mapped.runs[&AT].users, 2);
        mapped.close(AT, 10).unwrap();
        mapped.close(AT + 10, 10).unwrap();
        assert_eq!(mapped.take_unused().runs, std::slice::from_ref(&(AT..AT + PAGE)));
    }
}
