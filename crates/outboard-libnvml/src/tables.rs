//! Tables of functions that are in no header. `nvidia-smi` asks for one and wants nothing of it that NVML does not have as well.

use std::ffi::c_void;

use outboard_abi::nvml::nvmlReturn_t;

/// What `nvidia-smi` asks for.
const SMI: [u8; 16] = [0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4];

/// Entries; more than any release has.
const ENTRIES: usize = 512;

extern "C" fn unsupported() -> nvmlReturn_t {
    nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED
}

/// The size in bytes, then functions.
#[repr(C)]
struct Table {
    size: usize,
    functions: [extern "C" fn() -> nvmlReturn_t; ENTRIES - 1],
}

static TABLE: Table = Table { size: size_of::<Table>(), functions: [unsupported; ENTRIES - 1] };

/// The table of this name.
pub(crate) fn find(uuid: &[u8; 16]) -> Option<*const c_void> {
    (*uuid == SMI).then_some((&raw const TABLE).cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_tables_are_there() {
        assert!(find(&SMI).is_some());
        assert!(find(&[0; 16]).is_none());
        assert_eq!(TABLE.size, ENTRIES * 8);
        assert_eq!(TABLE.functions[0](), nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED);
    }
}
