//! Tables of functions that are in no header. `nvidia-smi` does not start without one. Of its
//! functions those are there without which it fails, and those that public functions answer as
//! well; without the rest it shows `N/A`. Positions and parameters were found by giving
//! `nvidia-smi` (535 and 550) a table whose functions say how they are called, and by seeing what
//! it prints of their answers.

use std::ffi::{c_char, c_int, c_uint, c_void};

use outboard_abi::nvml::{
    nvmlDevice_t, nvmlGpuTopologyLevel_t, nvmlMarginTemperature_v1_t, nvmlReturn_t,
};
use outboard_nvml::{PciPlace, find as describe};

use crate::border::{INVALID, Result, put, text};
use crate::query::Argument::Pointer;
use crate::query::ask;
use crate::{border, device, local, session};

/// What `nvidia-smi` asks for.
const SMI: [u8; 16] = [
    0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
];

/// Entries; more than any release has.
const ENTRIES: usize = 512;

/// Any function: whoever calls it knows its parameters.
type Function = unsafe extern "C" fn();

/// A function that tells how near two devices are, which it gets as PCI addresses.
type Path = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_uint) -> nvmlReturn_t;

/// Where it stands. `nvidia-smi topo` fails without it.
const PATH: usize = 0xb8 / 8;

/// A function that tells one number of a device.
type Number = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t;

/// Where the functions of this kind stand: whether `dmon` and `pmon` can watch the device, without
/// which they show nothing; by how much it may become warmer; whether kernels read memory that CUDA
/// has not allocated.
const NUMBERS: [(usize, Number); 3] =
    [(0x240 / 8, is_watched), (0x780 / 8, margin), (0x790 / 8, addressing)];

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
    let mut number = 0;
    while number < NUMBERS.len() {
        let (place, function) = NUMBERS[number];
        // SAFETY: as above.
        functions[place - 1] = unsafe { core::mem::transmute::<Number, Function>(function) };
        number += 1;
    }
    // SAFETY: as above.
    functions[PATH - 1] = unsafe { core::mem::transmute::<Path, Function>(path) };
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

unsafe extern "C" fn path(
    one: *const c_char,
    other: *const c_char,
    out: *mut c_uint,
) -> nvmlReturn_t {
    border::enter(|| {
        // SAFETY: two strings, and the address of a number, by the contract.
        unsafe { put(out, steps(distance(text(one)?, text(other)?)?)) }
    })
}

/// How near two PCI addresses are. What is none of the devices, such as an adapter of this machine,
/// is nearer to none of them.
fn distance(one: &str, other: &str) -> Result<nvmlGpuTopologyLevel_t> {
    let machine = session::machine()?;
    let position = |address| {
        let place = local::parse_address(address)?;
        machine.platform().devices.iter().position(|known| PciPlace::of(known) == Some(place))
    };
    let mut level = nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SYSTEM;
    let (Some(one), Some(other)) = (position(one), position(other)) else { return Ok(level) };
    let function = describe("nvmlDeviceGetTopologyCommonAncestor").ok_or(INVALID)?;
    let arguments = [
        Pointer(device::handle(one).cast()),
        Pointer(device::handle(other).cast()),
        Pointer((&raw mut level).cast()),
    ];
    // SAFETY: two devices, and room for the answer.
    unsafe { ask(&machine, function, &arguments) }?;
    Ok(level)
}

/// How `nvidia-smi topo` counts a distance: 0 for one bridge between two devices, up to 4 for all
/// of the system. What NVLink connects it finds by public functions.
fn steps(level: nvmlGpuTopologyLevel_t) -> c_uint {
    const LEVELS: c_uint = nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SINGLE.0;
    const SYSTEM: c_uint = nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SYSTEM.0;
    (level.0.min(SYSTEM) / LEVELS).saturating_sub(1)
}

/// Gives a number of a device.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn number(
    device: nvmlDevice_t,
    out: *mut c_uint,
    value: impl FnOnce() -> Result<c_uint>,
) -> nvmlReturn_t {
    border::enter(|| {
        let machine = session::machine()?;
        device::index(&machine, device)?;
        // SAFETY: by the contract above.
        unsafe { put(out, value()?) }
    })
}

unsafe extern "C" fn is_watched(device: nvmlDevice_t, out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the same contract.
    unsafe { number(device, out, || Ok(1)) }
}

unsafe extern "C" fn margin(device: nvmlDevice_t, out: *mut c_uint) -> nvmlReturn_t {
    let value = || {
        let machine = session::machine()?;
        let function = describe("nvmlDeviceGetMarginTemperature").ok_or(INVALID)?;
        let version = size_of::<nvmlMarginTemperature_v1_t>() as c_uint | 1 << 24;
        let mut asked = nvmlMarginTemperature_v1_t { version, marginTemperature: 0 };
        let arguments = [Pointer(device.cast()), Pointer((&raw mut asked).cast())];
        // SAFETY: a device, and such a structure.
        unsafe { ask(&machine, function, &arguments) }?;
        let degrees: c_int = asked.marginTemperature;
        Ok(degrees.cast_unsigned())
    };
    // SAFETY: the same contract.
    unsafe { number(device, out, value) }
}

unsafe extern "C" fn addressing(device: nvmlDevice_t, out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the same contract.
    unsafe { number(device, out, || Ok(local::ADDRESSING_MODE.0)) }
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
        let numbers = NUMBERS.map(|(place, _)| place);
        for place in [&[1, ENTRIES - 1][..], &PROCESSES, &numbers].concat() {
            // SAFETY: each takes at most a device and two addresses, and null is a valid mistake.
            let status = unsafe {
                let list = core::mem::transmute::<Function, List>(TABLE.functions[place - 1]);
                list(core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut())
            };
            let there = PROCESSES.contains(&place) || numbers.contains(&place);
            let wanted = if there {
                nvmlReturn_t::NVML_ERROR_UNINITIALIZED
            } else {
                nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED
            };
            assert_eq!(status, wanted, "{place}");
        }
    }
    #[test]
    fn distances_are_counted_in_steps() {
        let levels = [
            (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_INTERNAL, 0),
            (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SINGLE, 0),
            (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_MULTIPLE, 1),
            (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_HOSTBRIDGE, 2),
            (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_NODE, 3),
            (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SYSTEM, 4),
            (nvmlGpuTopologyLevel_t(90), 4),
        ];
        for (level, wanted) in levels {
            assert_eq!(steps(level), wanted, "{level:?}");
        }
    }
}
