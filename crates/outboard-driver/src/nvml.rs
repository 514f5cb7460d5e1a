//! A loaded NVML library, called by the names of its functions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};

use outboard_abi::nvml::{nvmlDevice_t, nvmlReturn_t};

/// The file that a driver installs.
pub const FILE: &str = "libnvidia-ml.so.1";

/// What our own client library exports and NVIDIA's does not: a server must not ask itself.
const OURS: &CStr = c"outboard_nvml";

/// A loaded NVML library. It stays loaded until the process ends.
pub struct Nvml {
    library: libloading::Library,
    functions: RefCell<HashMap<&'static str, *const c_void>>,
}

impl Nvml {
    /// Loads and initialises the first library that can be: at `path` if one is given, else beside
    /// the driver library, else found by the loader.
    ///
    /// # Safety
    /// Files of that name are NVML libraries, whose initialisers this runs.
    pub unsafe fn load(path: Option<&Path>, driver: &Path) -> Option<Nvml> {
        let beside = driver
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .map(|folder| folder.join(FILE));
        let usual = || beside.into_iter().chain([PathBuf::from(FILE)]).collect();
        let candidates: Vec<PathBuf> = path.map_or_else(usual, |path| vec![path.to_owned()]);
        candidates.iter().find_map(|candidate| {
            // SAFETY: by the contract above.
            let library = unsafe { libloading::Library::new(candidate) }.ok()?;
            // SAFETY: only looked for.
            if unsafe { library.get::<*const c_void>(OURS.to_bytes_with_nul()) }.is_ok() {
                return None;
            }
            let nvml = Nvml { library, functions: RefCell::default() };
            // SAFETY: it takes no arguments.
            let started = unsafe { nvml.call("nvmlInit_v2", &[]) };
            (started == Some(nvmlReturn_t::NVML_SUCCESS)).then_some(nvml)
        })
    }

    /// The handle of the device with this UUID.
    pub fn device(&self, uuid: &str) -> Option<nvmlDevice_t> {
        let uuid = CString::new(uuid).ok()?;
        let mut device: nvmlDevice_t = core::ptr::null_mut();
        let arguments = [
            uuid.as_ptr().expose_provenance() as u64,
            (&raw mut device).expose_provenance() as u64,
        ];
        // SAFETY: a string, and room for a handle.
        let status = unsafe { self.call("nvmlDeviceGetHandleByUUID", &arguments) };
        (status == Some(nvmlReturn_t::NVML_SUCCESS)).then_some(device)
    }

    /// Calls a function; `None` if the library does not have it, or if it takes more arguments than
    /// any that is described.
    ///
    /// # Safety
    /// The arguments are those of the C function of that name: integers, and addresses that are
    /// valid for what it does with them.
    pub unsafe fn call(&self, name: &'static str, arguments: &[u64]) -> Option<nvmlReturn_t> {
        let function = self.function(name)?;
        macro_rules! with {
            ($($index:literal),*) => {{
                // SAFETY: the symbol is that function, which takes as many integers and pointers.
                // On the processors that are built for (x86-64 and 64-bit Arm, Linux) each takes
                // one register or one eight-byte slot of the stack, and of a narrower integer the
                // rest is ignored.
                unsafe {
                    let function: unsafe extern "C" fn($(with!(@word $index)),*) -> nvmlReturn_t = core::mem::transmute(function);
                    function($(arguments[$index]),*)
                }
            }};
            (@word $index:literal) => { u64 };
        }
        Some(match arguments.len() {
            0 => with!(),
            1 => with!(0),
            2 => with!(0, 1),
            3 => with!(0, 1, 2),
            4 => with!(0, 1, 2, 3),
            5 => with!(0, 1, 2, 3, 4),
            6 => with!(0, 1, 2, 3, 4, 5),
            _ => return None,
        })
    }

    fn function(&self, name: &'static str) -> Option<*const c_void> {
        let mut functions = self.functions.borrow_mut();
        let found = *functions.entry(name).or_insert_with(|| {
            // SAFETY: the symbol is taken for the address that it is.
            unsafe { self.library.get::<*const c_void>(name.as_bytes()) }
                .map_or(core::ptr::null(), |symbol| *symbol)
        });
        (!found.is_null()).then_some(found)
    }
}
