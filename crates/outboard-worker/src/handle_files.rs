//! The files behind handles by which workers give each other memory and events, where the driver
//! has such files: the software device would else open sockets for them, which a worker may not.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use outboard_abi::{CUresult, own_tables};
use outboard_driver::{Table, check};

use crate::answer::Outcome;
use crate::own_table::own_table;

/// A handle that a driver makes for other processes.
pub(crate) type Handle = [u8; 64];

/// The driver's table for these files; none, if it has no files, or opens them by itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct HandleFiles(Option<&'static own_tables::HandleFiles>);

impl HandleFiles {
    /// Those of a driver. From then on it opens no sockets for handles.
    pub(crate) fn of(table: &Table) -> HandleFiles {
        HandleFiles(own_table(table, own_tables::HandleFiles::NAME))
    }

    /// Whether files travel with handles.
    pub(crate) fn travel(&self) -> bool {
        self.0.is_some()
    }

    /// The file behind a handle that this process has made, if it is to travel with it.
    pub(crate) fn file_of(&self, handle: &Handle) -> Result<Option<OwnedFd>, CUresult> {
        let Some(files) = self.0 else { return Ok(None) };
        let mut file = -1;
        // SAFETY: the function of the table, with room for a descriptor.
        check(unsafe { (files.file_of)(handle, &raw mut file) })?;
        // SAFETY: it is the caller's.
        Ok(Some(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Gives the driver the file behind another process's handle, which it opens next.
    pub(crate) fn give(&self, handle: &Handle, file: Option<&OwnedFd>) -> Outcome {
        match (self.0, file) {
            // SAFETY: the function of the table, with an open descriptor.
            (Some(files), Some(file)) => check(unsafe { (files.give)(handle, file.as_raw_fd()) }),
            _ => Ok(()),
        }
    }
}
