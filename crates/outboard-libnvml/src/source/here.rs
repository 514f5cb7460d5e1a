//! The software device in this process.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use outboard_abi::nvml::nvmlReturn_t;
use outboard_abi::own_tables;
use outboard_nvml_answers::{Described, Question, Use};
use outboard_wire::Reader;
use outboard_wire::platform::Platform;

use crate::border::Result;

/// The folder of an installation in which the software device is `libcuda.so.1`. The library there
/// answers for that one, and has no server.
const FOLDER: &str = "cpu";

/// The functions of the table.
#[derive(Clone, Copy)]
struct Functions(&'static own_tables::Described);

impl Functions {
    /// Those of the driver library that the process has, or would have.
    fn find() -> Option<Functions> {
        let words = outboard_table::find(&own_tables::Described::NAME)?;
        let is_whole = size_of_val(words) >= size_of::<own_tables::Described>();
        // SAFETY: the table of this name, which stays; no shorter one is read.
        is_whole.then(|| Functions(unsafe { &*words.as_ptr().cast() }))
    }

    fn platform(self) -> Option<Platform> {
        let mut encoded = Vec::new();
        // SAFETY: there is as much room as said.
        let length = unsafe { (self.0.describe)(core::ptr::null_mut(), 0) };
        encoded.resize(length, 0);
        // SAFETY: as above. The description is made once: the second one is as long.
        unsafe { (self.0.describe)(encoded.as_mut_ptr(), length) };
        Reader::new(&encoded).get().ok()
    }

    /// Bytes of a device's memory in use, if the process has a context on it.
    fn of_a_context(self, ordinal: u32) -> Option<u64> {
        let mut bytes = 0;
        // SAFETY: room for a number.
        let has_context = unsafe { (self.0.in_use)(ordinal, &raw mut bytes) } != 0;
        has_context.then_some(bytes)
    }
}

/// What this process uses: each process has a software device of its own.
impl Use for Functions {
    fn processes(&self) -> Vec<u32> {
        vec![std::process::id()]
    }

    fn memory(&self, ordinal: u32) -> u64 {
        self.of_a_context(ordinal).unwrap_or(0)
    }
}

/// The devices of this process.
pub(crate) struct SoftwareDevice {
    platform: Platform,
    functions: Functions,
    described: Described<Functions>,
}

impl SoftwareDevice {
    /// Whether this library is the one that answers for the software device.
    pub(crate) fn is_asked_for() -> bool {
        let folder =
            own_file().and_then(Path::parent).and_then(|folder| folder.canonicalize().ok());
        folder.is_some_and(|folder| folder.file_name() == Some(OsStr::new(FOLDER)))
    }

    /// The device, if the driver library is one. Its library is loaded, and starts nothing: a
    /// program may fork after it has asked NVML.
    pub(crate) fn find() -> Option<SoftwareDevice> {
        let functions = Functions::find()?;
        let platform = functions.platform()?;
        Some(SoftwareDevice { platform, functions, described: Described::new(functions) })
    }

    pub(super) fn platform(&self) -> &Platform {
        &self.platform
    }

    pub(super) fn query(
        &self,
        function: &str,
        arguments: &[u8],
    ) -> Result<(nvmlReturn_t, Vec<u8>)> {
        let mut question = Question::read(function, arguments, self.platform.devices.len())
            .map_err(|_| nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT)??;
        let status = self.described.answer(&self.platform, &mut question);
        Ok((status, question.results(status)))
    }

    /// This process, if it has a context on the device.
    pub(super) fn processes(&self, device: u32) -> Vec<(u32, u64)> {
        let Some(device) = self.platform.devices.get(device as usize) else { return Vec::new() };
        let bytes = self.functions.of_a_context(device.id.ordinal());
        bytes.map(|bytes| (std::process::id(), bytes)).into_iter().collect()
    }
}

/// The file from which this library was loaded.
fn own_file() -> Option<&'static Path> {
    let own: *const c_void = (&raw const crate::outboard_nvml).cast();
    // SAFETY: plain numbers and addresses, of which all zero is one.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: an address, and room for what is known of it.
    if unsafe { libc::dladdr(own, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the loader, which lives as long as this library, and that is never
    // unloaded.
    let name: &'static CStr = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}
