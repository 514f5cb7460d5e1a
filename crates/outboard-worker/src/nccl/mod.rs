//! NCCL beside the worker's driver.

mod entries;
mod sockets;

use std::path::Path;

use crate::io::Registry;

/// Lets the NCCL that was loaded from `library` have its sockets from the supervisor: the worker's
/// sandbox has no network. To be called before any other function of it.
///
/// # Errors
/// A sentence that says why it cannot have them.
pub(crate) fn give_sockets(library: &Path, registry: &Registry) -> Result<(), String> {
    sockets::come_from(registry);
    // SAFETY: the functions have the types of those that they replace.
    let replaced = unsafe { entries::replace(library, &sockets::functions()) };
    let replaced = replaced.map_err(|error| format!("{}: {error}", library.display()))?;
    tracing::debug!(library = %library.display(), replaced, "NCCL's sockets come from the supervisor");
    Ok(())
}

#[cfg(test)]
mod tests;
