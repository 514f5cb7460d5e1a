//! Attributes of launches and streams: which may cross the wire, and how.

use crate::names::ObjectId;

/// `CUlaunchAttributeID`s whose value is plain numbers, or the address of device memory that the
/// launch will not access by it.
pub const PLAIN_ATTRIBUTES: [u32; 11] = [
    1,  // CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    3,  // CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    4,  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    5,  // CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
    6,  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    8,  // CU_LAUNCH_ATTRIBUTE_PRIORITY
    9,  // CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
    10, // CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
    11, // CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
    14, // CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    16, // CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING
];

/// `CUlaunchAttributeID`s whose value begins with an event: on the wire, its name as `u64`.
pub const EVENT_ATTRIBUTES: [u32; 2] = [
    7,  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
    12, // CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
];

/// `CUstreamAttrID`s: attributes that streams have too. All are plain.
pub const STREAM_ATTRIBUTES: [u32; 5] = [
    1,  // CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    3,  // CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    8,  // CU_LAUNCH_ATTRIBUTE_PRIORITY
    9,  // CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
    10, // CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
];

/// Bytes of an attribute's value, the same in every driver.
pub const ATTRIBUTE_BYTES: usize = 64;

/// Whether an attribute's value begins with an event.
pub fn names_event(attribute: u32) -> bool {
    EVENT_ATTRIBUTES.contains(&attribute)
}

/// The name of the event in the value of an attribute that [`names_event`].
pub fn event_of(value: &[u8; ATTRIBUTE_BYTES]) -> ObjectId {
    value.first_chunk().map_or(ObjectId::NONE, |bytes| ObjectId(u64::from_le_bytes(*bytes)))
}
