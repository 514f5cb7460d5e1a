//! Addresses of devices whose PCI domain is another one here than on their server.

use std::ffi::{c_char, c_uint};
use std::mem::offset_of;

use outboard_abi::nvml::{nvmlPciInfo_t, nvmlPciInfoExt_v1_t};
use outboard_nvml::{Function, PciPlace};

use crate::device;
use crate::machine::Machine;
use crate::query::Argument;

/// Where a structure has the domain, and the address as text: offset, room, digits of the domain.
struct Form {
    name: &'static str,
    domain: usize,
    texts: &'static [(usize, usize, usize)],
}

const LEGACY: (usize, usize, usize) = (offset_of!(nvmlPciInfo_t, busIdLegacy), 16, 4);
const FULL: (usize, usize, usize) = (offset_of!(nvmlPciInfo_t, busId), 32, 8);

const FORMS: [Form; 4] = [
    Form {
        name: "nvmlDeviceGetPciInfo",
        domain: offset_of!(nvmlPciInfo_t, domain),
        texts: &[LEGACY],
    },
    Form {
        name: "nvmlDeviceGetPciInfo_v2",
        domain: offset_of!(nvmlPciInfo_t, domain),
        texts: &[LEGACY],
    },
    Form {
        name: "nvmlDeviceGetPciInfo_v3",
        domain: offset_of!(nvmlPciInfo_t, domain),
        texts: &[LEGACY, FULL],
    },
    Form {
        name: "nvmlDeviceGetPciInfoExt",
        domain: offset_of!(nvmlPciInfoExt_v1_t, domain),
        texts: &[(offset_of!(nvmlPciInfoExt_v1_t, busId), 32, 8)],
    },
];

/// Puts the domain that the device has in this process where a server has written its own.
///
/// # Safety
/// The arguments are those of the function, which has succeeded with them.
pub(crate) unsafe fn correct(machine: &Machine, function: &Function, arguments: &[Argument]) {
    let Some(form) = FORMS.iter().find(|form| form.name == function.name) else { return };
    let [Argument::Pointer(handle), Argument::Pointer(out)] = arguments else { return };
    let moved = device::index(machine, handle.cast()).ok().and_then(|index| machine.moved(index));
    let Some(PciPlace { domain, bus, slot }) = moved.and_then(PciPlace::of) else { return };
    // SAFETY: the function has written such a structure there.
    unsafe { out.byte_add(form.domain).cast::<c_uint>().write_unaligned(domain) };
    for (offset, room, digits) in form.texts {
        let text = format!("{domain:0digits$X}:{bus:02X}:{slot:02X}.0\0");
        let text = &text.as_bytes()[..text.len().min(*room)];
        // SAFETY: as above; the text is no longer than its field.
        unsafe {
            core::ptr::copy_nonoverlapping(
                text.as_ptr().cast::<c_char>(),
                out.byte_add(*offset).cast(),
                text.len(),
            )
        };
    }
}
