//! What Outboard's NVML library asks that is loaded beside this one. It asks also where no CUDA is
//! used, and in a forked child: nothing here starts the devices, and nothing in a child locks what
//! a thread of its parent may have locked.

use outboard_abi::own_tables::Described;
use outboard_front::is_forked;
use outboard_wire::Writer;

use crate::cpu::Cpu;
use crate::device;

pub(crate) static TABLE: Described = Described { size: size_of::<Described>(), describe, in_use };

/// Writes the encoded platform if there is so much room, and returns how long it is.
///
/// # Safety
/// `out` is valid for writes of `room` bytes.
unsafe extern "C" fn describe(out: *mut u8, room: usize) -> usize {
    let mut writer = Writer::new();
    writer.put(&device::platform(Cpu::get().config()));
    let encoded = writer.as_slice();
    if encoded.len() <= room {
        // SAFETY: there is room for as many.
        unsafe { core::ptr::copy_nonoverlapping(encoded.as_ptr(), out, encoded.len()) };
    }
    encoded.len()
}

/// Writes how many bytes of a device's memory are in use, and returns 1 if this process has a
/// context on the device, else 0.
///
/// # Safety
/// `bytes` is valid for a write.
unsafe extern "C" fn in_use(ordinal: u32, bytes: *mut u64) -> u32 {
    let used = if is_forked() { None } else { Cpu::get().used_by_contexts(ordinal) };
    // SAFETY: by the contract.
    unsafe { bytes.write(used.unwrap_or(0)) };
    used.is_some().into()
}

#[cfg(test)]
mod tests {
    use outboard_wire::Reader;
    use outboard_wire::platform::Platform;

    use super::*;

    #[test]
    fn a_description_needs_room_and_no_context() {
        let mut encoded = Vec::new();
        // SAFETY: as much room as said.
        let length = unsafe { describe(encoded.as_mut_ptr(), 0) };
        assert!(encoded.is_empty() && length > 0);
        encoded.resize(length, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { describe(encoded.as_mut_ptr(), length) }, length);
        let platform: Platform = Reader::new(&encoded).get().unwrap();
        assert_eq!(platform, device::platform(Cpu::get().config()));
        let mut bytes = 1;
        // SAFETY: room for a number.
        assert_eq!((unsafe { in_use(0, &raw mut bytes) }, bytes), (0, 0));
    }
}
