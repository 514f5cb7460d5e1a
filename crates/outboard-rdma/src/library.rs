//! `libibverbs.so.1`, loaded at the first use.
//!
//! Nothing of it is linked, so that a program starts where it is not installed. It is loaded for
//! this crate alone (RTLD_LOCAL) and never unloaded.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

use crate::error::Error;
use crate::ffi::{
    AsyncEvent, Channel, Context, Cq, Device, DeviceAttr, Domain, GidEntry, IBV_FORK_UNNEEDED,
    PortAttr, QueuePair, QueuePairAttr, QueuePairInit, Region,
};

const NAME: &str = "libibverbs.so.1";

/// Makes the table of the library's functions, and its loading.
macro_rules! functions {
    ($($symbol:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Its functions. They may be called from any thread, as rdma-core promises of all verbs.
        #[derive(Debug)]
        pub(crate) struct Library {
            $(pub(crate) $symbol: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Whether a child of a fork gets copies of registered pages, and leaves this process
            /// those that the adapter knows.
            pub(crate) children_get_copies: bool,
            /// `ibv_reg_dmabuf_mr`, since rdma-core 34.
            pub(crate) register_dma_buf: Option<RegisterDmaBuf>,
        }

        impl Library {
            fn find(library: &libloading::Library) -> Result<Library, libloading::Error> {
                // SAFETY: each symbol is the function of that name in infiniband/verbs.h, whose
                // arguments and result are those listed here.
                unsafe {
                    Ok(Library {
                        $($symbol: *library.get(concat!(stringify!($symbol), "\0").as_bytes())?,)*
                        children_get_copies: false,
                        register_dma_buf: None,
                    })
                }
            }
        }
    };
}

functions! {
    ibv_fork_init() -> c_int;
    ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list(*mut *mut Device);
    ibv_get_device_name(*mut Device) -> *const c_char;
    ibv_open_device(*mut Device) -> *mut Context;
    ibv_close_device(*mut Context) -> c_int;
    ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
    ibv_query_port(*mut Context, u8, *mut PortAttr) -> c_int;
    _ibv_query_gid_table(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
    ibv_get_async_event(*mut Context, *mut AsyncEvent) -> c_int;
    ibv_ack_async_event(*mut AsyncEvent);
    ibv_alloc_pd(*mut Context) -> *mut Domain;
    ibv_dealloc_pd(*mut Domain) -> c_int;
    ibv_reg_mr(*mut Domain, *mut c_void, usize, c_int) -> *mut Region;
    ibv_dereg_mr(*mut Region) -> c_int;
    ibv_create_comp_channel(*mut Context) -> *mut Channel;
    ibv_destroy_comp_channel(*mut Channel) -> c_int;
    ibv_create_cq(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut Cq;
    ibv_destroy_cq(*mut Cq) -> c_int;
    ibv_get_cq_event(*mut Channel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut Cq, c_uint);
    ibv_create_qp(*mut Domain, *mut QueuePairInit) -> *mut QueuePair;
    ibv_modify_qp(*mut QueuePair, *mut QueuePairAttr, c_int) -> c_int;
    ibv_destroy_qp(*mut QueuePair) -> c_int;
    ibv_wc_status_str(c_uint) -> *const c_char;
}

/// The domain, where the memory begins in the buffer, its bytes, the address by which works name
/// it, the buffer, and who may do what.
type RegisterDmaBuf =
    unsafe extern "C" fn(*mut Domain, u64, usize, u64, c_int, c_int) -> *mut Region;

/// With less, the library itself writes a warning to standard error.
const LEAST_LOCKED: u64 = 32 << 10;

impl Library {
    /// The library, if this machine has it and a device.
    pub(crate) fn get() -> Result<&'static Library, Error> {
        static LIBRARY: OnceLock<Result<Library, Error>> = OnceLock::new();
        // Without a device, and with too little memory to lock, the library would say so itself,
        // on the program's standard error.
        if !kernel_has_devices() {
            return Err(Error::NoDevice);
        }
        let locked = locked_memory_limit();
        if locked <= LEAST_LOCKED {
            return Err(Error::LockedMemory { needed: LEAST_LOCKED, limit: locked });
        }
        LIBRARY.get_or_init(|| Library::load(NAME)).as_ref().map_err(Error::clone)
    }

    fn load(name: &str) -> Result<Library, Error> {
        // SAFETY: the library's constructors only fill tables of their own.
        let library = unsafe { libloading::Library::new(name) }.map_err(|error| {
            let why = error.to_string();
            if why.contains("No such file") && why.contains(name) {
                Error::NoLibrary { library: name.to_owned() }
            } else {
                Error::UnusableLibrary { library: name.to_owned(), why }
            }
        })?;
        let mut functions = Library::find(&library).map_err(|error| Error::UnusableLibrary {
            library: name.to_owned(),
            why: error.to_string(),
        })?;
        functions.children_get_copies = children_get_copies(&library);
        if !functions.children_get_copies {
            // SAFETY: takes nothing. It has regions left out of children, which never use them.
            // rdma-core 44, for one, does so where there is no need, too.
            unsafe { (functions.ibv_fork_init)() };
        }
        // SAFETY: the function of infiniband/verbs.h with these arguments.
        let found = unsafe { library.get::<RegisterDmaBuf>(b"ibv_reg_dmabuf_mr\0") };
        functions.register_dma_buf = found.ok().map(|found| *found);
        // Its functions are used until the process ends.
        std::mem::forget(library);
        Ok(functions)
    }
}

/// Whether the library has found that it need not leave pages out of children. One before
/// rdma-core 35 cannot say so.
fn children_get_copies(library: &libloading::Library) -> bool {
    type Found = unsafe extern "C" fn() -> c_uint;
    // SAFETY: the function of infiniband/verbs.h, which takes nothing and returns a number.
    let found = unsafe { library.get::<Found>(b"ibv_is_fork_initialized\0") };
    // SAFETY: as above.
    found.is_ok_and(|found| unsafe { found() } == IBV_FORK_UNNEEDED)
}

/// Whether the kernel shows adapters for verbs.
#[must_use]
pub fn kernel_has_devices() -> bool {
    std::fs::read_dir(Path::new("/sys/class/infiniband_verbs")).is_ok_and(|listed| {
        listed.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("uverbs"))
    })
}

/// How many bytes this process may lock, all regions together.
pub fn locked_memory_limit() -> u64 {
    getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Whether the library is installed, whether or not there is a device to use it with.
///
/// # Errors
/// [`Error::NoLibrary`] or [`Error::UnusableLibrary`].
pub fn installed() -> Result<(), Error> {
    Library::load(NAME).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_package() {
        let error = Library::load("libibverbs-of-nobody.so.1").err().unwrap();
        assert_eq!(
            error.to_string(),
            "RDMA is not available: libibverbs-of-nobody.so.1 is not installed; install \
             rdma-core (Debian: ibverbs-providers)"
        );
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_library_without_the_functions_is_told_apart() {
        let error = Library::load("libc.so.6").err().unwrap();
        assert!(matches!(&error, Error::UnusableLibrary { .. }), "{error}");
        assert!(error.to_string().contains("ibv_fork_init"), "{error}");
    }
}
