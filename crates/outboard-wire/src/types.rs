//! The types that fields of messages may have beyond plain ones.

pub use crate::arrays::{ArrayDescriptor, Resource, Sampler, SparseProperties, View};
pub use crate::boxes::{Extent, Region};
pub use crate::collectives::CommCall;
pub use crate::device_id::DeviceId;
pub use crate::files::{FileOpening, FileReference};
pub use crate::graph::{AllocateNode, Edge, GraphEdit, NodeParams};
pub use crate::image::ImageName;
pub use crate::jit::{JitLog, JitOptions};
pub use crate::names::{ContextId, DevicePtr, HostPtr, ObjectId, StreamId, UnifiedPtr};
pub use crate::platform::KernelInfo;
pub use crate::references::ReferenceSetting;
