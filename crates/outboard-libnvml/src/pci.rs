//! Addresses on PCI buses whose domain is another one here than on their server.

use std::ffi::{c_char, c_uint};
use std::mem::offset_of;

use outboard_abi::nvml::{nvmlPciInfo_t, nvmlPciInfoExt_v1_t};
use outboard_nvml::Function;

use crate::device;
use crate::machine::Machine;
use crate::query::Argument;

/// Where a structure has domain, bus and place on the bus, which follow each other, and where the
/// address as text: offset, room, digits of the domain.
struct Form {
    names: &'static [&'static str],
    numbers: usize,
    texts: &'static [(usize, usize, usize)],
}

const LEGACY: (usize, usize, usize) = (offset_of!(nvmlPciInfo_t, busIdLegacy), 16, 4);
const FULL: (usize, usize, usize) = (offset_of!(nvmlPciInfo_t, busId), 32, 8);

/// The functions by the structure that they write: their last argument.
const FORMS: [Form; 3] = [
    Form {
        names: &[
            "nvmlDeviceGetPciInfo",
            "nvmlDeviceGetPciInfo_v2",
            "nvmlDeviceGetNvLinkRemotePciInfo",
        ],
        numbers: offset_of!(nvmlPciInfo_t, domain),
        texts: &[LEGACY],
    },
    Form {
        names: &["nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetNvLinkRemotePciInfo_v2"],
        numbers: offset_of!(nvmlPciInfo_t, domain),
        texts: &[LEGACY, FULL],
    },
    Form {
        names: &["nvmlDeviceGetPciInfoExt"],
        numbers: offset_of!(nvmlPciInfoExt_v1_t, domain),
        texts: &[(offset_of!(nvmlPciInfoExt_v1_t, busId), 32, 8)],
    },
];

/// Puts the domain of this process where a server has written its own.
///
/// # Safety
/// The arguments are those of the function, which has succeeded with them.
pub(crate) unsafe fn correct(machine: &Machine, function: &Function, arguments: &[Argument]) {
    let Some(form) = FORMS.iter().find(|form| form.names.contains(&function.name)) else { return };
    let [Argument::Pointer(handle), .., Argument::Pointer(out)] = arguments else { return };
    let Ok(place) = device::place(machine, handle.cast()) else { return };
    // SAFETY: the function has written such a structure there.
    let [written, bus, slot] =
        unsafe { out.byte_add(form.numbers).cast::<[c_uint; 3]>().read_unaligned() };
    let domain = machine.domain_here(place.source, written);
    if domain == written {
        return;
    }
    // SAFETY: as above.
    unsafe { out.byte_add(form.numbers).cast::<c_uint>().write_unaligned(domain) };
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
