//! Attributes of launches.

use outboard_abi::{CUevent, CUlaunchAttribute, CUlaunchAttributeID_enum as L, CUresult};
use outboard_wire::launch::{PLAIN_ATTRIBUTES, event_of, names_event};

use crate::backend::Result;
use crate::event;
use crate::process::Front;

/// What a launch carries besides its shape and parameters.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) cooperative: bool,
    /// Attribute and the bytes of its value. Handles in it are the backend's names, since they are
    /// the same.
    pub(crate) attributes: Vec<(u32, [u8; 64])>,
}

impl Extras {
    /// Reads the attributes that a program gave.
    pub(crate) fn new(front: &'static Front, attributes: &[CUlaunchAttribute]) -> Result<Extras> {
        let mut extras = Extras::default();
        for attribute in attributes {
            // SAFETY: a union of plain values, all 64 bytes of which `pad` covers.
            let value = unsafe { attribute.value.pad }.map(|byte| byte as u8);
            match attribute.id {
                L::CU_LAUNCH_ATTRIBUTE_IGNORE => {}
                L::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => {
                    // SAFETY: the attribute's id says which member is set.
                    extras.cooperative = unsafe { attribute.value.cooperative } != 0
                }
                L::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION if is_cut(&value) => {
                    return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
                }
                id if PLAIN_ATTRIBUTES.contains(&id.0) => extras.attributes.push((id.0, value)),
                id if names_event(id.0) => {
                    event::for_launch(front, event_of(&value).0 as CUevent)?;
                    extras.attributes.push((id.0, value));
                }
                // Only the nodes of graphs are updated by devices.
                L::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
                    return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
                }
                // The others do not exist in this version.
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(extras)
    }
}

/// Whether a cluster has blocks in some dimensions and none in others. Without any, it is none.
fn is_cut(value: &[u8; 64]) -> bool {
    let (dimensions, _) = value[..12].as_chunks::<4>();
    let none = dimensions.iter().filter(|blocks| **blocks == [0; 4]).count();
    none > 0 && none < dimensions.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_wire::launch::{EVENT_ATTRIBUTES, STREAM_ATTRIBUTES};

    #[test]
    fn numbers_are_those_of_the_header() {
        let plain = [
            L::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
            L::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
            L::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            L::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
            L::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            L::CU_LAUNCH_ATTRIBUTE_PRIORITY,
            L::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
            L::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
            L::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
            L::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
            L::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
        ];
        assert_eq!(PLAIN_ATTRIBUTES, plain.map(|id| id.0));
        let events = [
            L::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
            L::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
        ];
        assert_eq!(EVENT_ATTRIBUTES, events.map(|id| id.0));
        assert!(STREAM_ATTRIBUTES.iter().all(|id| PLAIN_ATTRIBUTES.contains(id)));
        let accounted = PLAIN_ATTRIBUTES.len() + EVENT_ATTRIBUTES.len();
        // Besides them: to be ignored, cooperative, device-updatable, and 15, which has no name.
        assert_eq!(accounted + 4, L::CU_LAUNCH_ATTRIBUTE_MAX.0 as usize);
    }
}
