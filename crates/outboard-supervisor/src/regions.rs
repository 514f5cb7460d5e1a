//! Memory that virtual machines and this host share: which part of it a session gets.

use std::io;

use outboard_transport::ivshmem::{Allotted, Id, Region};

/// A free part of the region that the client's machine has; or why it gets none, as a sentence.
pub(super) fn allot(regions: &[Region], wanted: Id) -> Result<Allotted, String> {
    if regions.is_empty() {
        return Err("the server shares no memory with virtual machines: it runs without \
                    `--ivshmem`"
            .to_owned());
    }
    let mut failed = None;
    for region in regions {
        match region.allot(wanted) {
            Ok(Some(part)) => return Ok(part),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Err(error.to_string());
            }
            // It may be another machine's.
            Err(error) => failed = Some(format!("{}: {error}", region.path().display())),
        }
    }
    Err(failed.unwrap_or_else(|| {
        "none of the server's regions is the device of the client's machine; a device that is new \
         serves the sessions that begin after this one"
            .to_owned()
    }))
}
