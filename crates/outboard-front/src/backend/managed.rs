//! What memory that host and device both touch: mapped and managed need of a device.

/// The part of a [`Backend`](super::Backend) for memory that host and device both touch: mapped and managed.
pub trait Managed: Sized {}
