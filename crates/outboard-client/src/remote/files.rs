//! Files that a server on this machine uses by the program's own descriptors.

use std::os::fd::BorrowedFd;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, Result};
use outboard_wire::messages as msg;

use super::Remote;

impl Remote {
    /// Hands the server a descriptor, unless it could not open the file by itself.
    pub(super) fn file_give(
        &self,
        ctx: ContextId,
        file: ObjectId,
        descriptor: BorrowedFd<'_>,
        reads: bool,
        writes: bool,
    ) -> Result<()> {
        let session = self.session()?;
        let link = session.link();
        if !link.shares_files() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let number = link.give_file(descriptor).map_err(|_| CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        self.call_idle(ctx, &msg::FileGive { file, number, reads, writes }, |_| ())
    }
}
