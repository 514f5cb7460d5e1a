//! NCCL beside the worker's driver.

mod entries;
mod sockets;

use std::path::Path;

use rustix::io::Errno;

use crate::io::Registry;

/// Lets the NCCL that was loaded from `library` have its sockets from the supervisor: the worker's
/// sandbox has no network. To be called before any other function of it.
///
/// # Errors
/// A sentence that says why it cannot have them.
pub(crate) fn give_sockets(library: &Path, registry: &Registry) -> Result<(), String> {
    if let Err(errno) = registry.interface() {
        return Err(none(errno));
    }
    sockets::come_from(registry);
    // SAFETY: the functions have the types of those that they replace.
    let replaced = unsafe { entries::replace(library, &sockets::functions()) };
    let replaced = replaced.map_err(|error| format!("{}: {error}", library.display()))?;
    tracing::debug!(library = %library.display(), replaced, "NCCL's sockets come from the supervisor");
    Ok(())
}

/// Why the supervisor has none.
fn none(errno: Errno) -> String {
    let why = match errno {
        Errno::ACCESS => "is started with `--peers none`, so its workers connect to no others",
        Errno::NETUNREACH => {
            "has no network interface at which others reach it; `--peer-interface` names one"
        }
        _ => "has not answered",
    };
    format!("there are no collectives on the GPU's server: `outboard serve` {why}")
}

#[cfg(test)]
mod tests;
