//! Tables of functions that are in no header. `nvidia-smi` does not start without one. Of its
//! functions those that list processes are there, since it uses no others for that; without the
//! rest it shows `N/A`.

use std::ffi::{c_uint, c_void};

use outboard_abi::nvml::{nvmlDevice_t, nvmlReturn_t};

use crate::{border, local};

/// What `nvidia-smi` asks for.
const SMI: [u8; 16] = [
    0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
];

/// Entries; more than any release has.
const ENTRIES: usize = 512;

/// Any function: whoever calls it knows its parameters.
type Function = unsafe extern "C" fn();

/// A function that lists processes.
type List = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut Process) -> nvmlReturn_t;

/// Where the functions stand that list the processes of each kind: compute, graphics, MPS.
const PROCESSES: [usize; 3] = [0x6a8 / 8, 0x6b0 / 8, 0x6b8 / 8];

/// A process as they list it.
#[repr(C)]
struct Process {
    number: u32,
    bytes: u64,
    /// Partitions of a GPU: of the GPU, and of that one's processors.
    instances: [u32; 2],
    /// Ends in a zero.
    name: [u8; 4096],
    reserved: u64,
}

const _: () = assert!(size_of::<Process>() == 0x1020);

unsafe extern "C" fn unsupported() -> nvmlReturn_t {
    nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED
}

/// The size in bytes, then functions.
#[repr(C)]
struct Table {
    size: usize,
    functions: [Function; ENTRIES - 1],
}

static TABLE: Table = {
    // SAFETY: only called by who knows what it is.
    let nothing = unsafe {
        core::mem::transmute::<unsafe extern "C" fn() -> nvmlReturn_t, Function>(unsupported)
    };
    let mut functions = [nothing; ENTRIES - 1];
    let lists: [List; 3] = [compute, graphics, mps];
    let mut kind = 0;
    while kind < lists.len() {
        // SAFETY: as above. The size stands before the functions.
        functions[PROCESSES[kind] - 1] =
            unsafe { core::mem::transmute::<List, Function>(lists[kind]) };
        kind += 1;
    }
    Table { size: size_of::<Table>(), functions }
};

unsafe extern "C" fn compute(
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut Process,
) -> nvmlReturn_t {
    // SAFETY: the caller gives what the public functions of that purpose want.
    border::enter(|| unsafe { local::list_processes(device, count, out, Process::new) })
}

unsafe extern "C" fn graphics(
    device: nvmlDevice_t,
    count: *mut c_uint,
    _: *mut Process,
) -> nvmlReturn_t {
    // SAFETY: as above.
    border::enter(|| unsafe { local::list_no_processes(device, count) })
}

unsafe extern "C" fn mps(
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut Process,
) -> nvmlReturn_t {
    // SAFETY: the same contract.
    unsafe { graphics(device, count, out) }
}

impl Process {
    fn new(number: u32, bytes: u64) -> Process {
        let mut name = [0; 4096];
        let room = name.len() - 1;
        for (to, from) in
            name[..room].iter_mut().zip(local::name_of(number).unwrap_or_default().bytes())
        {
            *to = from;
        }
        Process { number, bytes, instances: [local::NO_INSTANCE; 2], name, reserved: 0 }
    }
}

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
        // They say that NVML was not initialised: the functions that are there are in their places,
        // and the others say that they are not there.
        for place in [1, PROCESSES[0], PROCESSES[1], PROCESSES[2], ENTRIES - 1] {
            // SAFETY: each takes at most a device and two addresses, and null is a valid mistake.
            let status = unsafe {
                let list = core::mem::transmute::<Function, List>(TABLE.functions[place - 1]);
                list(core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut())
            };
            let there = PROCESSES.contains(&place);
            let wanted = if there {
                nvmlReturn_t::NVML_ERROR_UNINITIALIZED
            } else {
                nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED
            };
            assert_eq!(status, wanted, "{place}");
        }
    }
}
