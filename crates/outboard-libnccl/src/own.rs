//! The program's own NCCL: what it would have got without Outboard's. It is used with servers that
//! make no collectives, where it may work: with one device, for instance.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Its name.
const FILE: &str = "libnccl.so.2";
/// Where PyPI's wheel has it, in a folder of packages.
const WHEEL: &str = "nvidia/nccl/lib";
/// How far above a library the folder of packages may be.
const ABOVE: usize = 6;
/// Where distributions have it.
const SYSTEM: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"];
/// What this library exports and NCCL does not.
const OURS: &CStr = c"outboard_nccl";

/// The library, if there is one.
pub(crate) struct Own(*mut c_void);

// SAFETY: a handle of the loader's, of a library that is never closed.
unsafe impl Send for Own {}
// SAFETY: likewise.
unsafe impl Sync for Own {}

impl Own {
    /// Loads it, from where the packages whose libraries are loaded have it.
    pub(crate) fn find() -> Option<Own> {
        let mut folders: Vec<PathBuf> = Vec::new();
        // SAFETY: the function below, with the list that it adds to.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut folders).cast()) };
        let near = folders.iter().flat_map(|folder| {
            let above = folder.ancestors().take(ABOVE).map(|folder| folder.join(WHEEL));
            std::iter::once(folder.clone()).chain(above)
        });
        let all = near.chain(SYSTEM.map(PathBuf::from)).map(|folder| folder.join(FILE));
        all.filter(|file| file.is_file()).find_map(load)
    }

    /// A function of it.
    pub(crate) fn function(&self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: the handle is a loaded library's.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const())
    }
}

fn load(file: PathBuf) -> Option<Own> {
    let file = CString::new(file.into_os_string().into_vec()).ok()?;
    let how = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
    // SAFETY: a library that the program would have loaded itself. What it calls by the names of
    // its own functions is its own, although this library was loaded before.
    let own = Own(unsafe { libc::dlopen(file.as_ptr(), how) });
    (!own.0.is_null() && own.function(OURS).is_none()).then_some(own)
}

/// Notes the folder of a loaded library.
unsafe extern "C" fn note(
    library: *mut libc::dl_phdr_info,
    _size: usize,
    folders: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description, and the list of `find`.
    let (name, folders) = unsafe { ((*library).dlpi_name, &mut *folders.cast::<Vec<PathBuf>>()) };
    if !name.is_null() {
        // SAFETY: a string of the loader's.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
        if let Some(folder) = path.parent().filter(|folder| folder.is_absolute()) {
            folders.push(folder.to_owned());
        }
    }
    0
}
