//! The program's device memory, by its CUDA driver.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

use outboard_abi::{CUcontext, CUmemorytype, CUpointer_attribute, CUresult};

use crate::mpi::fail;

/// The functions that are needed of the driver.
struct Driver {
    ask: unsafe extern "C" fn(*mut c_void, CUpointer_attribute, u64) -> CUresult,
    push: unsafe extern "C" fn(CUcontext) -> CUresult,
    pop: unsafe extern "C" fn(*mut CUcontext) -> CUresult,
    to_host: unsafe extern "C" fn(*mut c_void, u64, usize) -> CUresult,
    to_device: unsafe extern "C" fn(u64, *const c_void, usize) -> CUresult,
    synchronize: unsafe extern "C" fn(*mut c_void) -> CUresult,
    current: unsafe extern "C" fn(*mut CUcontext) -> CUresult,
    initialize: unsafe extern "C" fn(c_uint) -> CUresult,
    primary: unsafe extern "C" fn(*mut CUcontext, c_int) -> CUresult,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> CUresult,
    free: unsafe extern "C" fn(u64) -> CUresult,
    within: unsafe extern "C" fn(u64, u64, usize) -> CUresult,
}

/// The driver, once the program has loaded one.
fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    if let Some(found) = DRIVER.get() {
        return found.as_ref();
    }
    // SAFETY: it loads nothing.
    let library =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if library.is_null() {
        return None;
    }
    DRIVER.get_or_init(|| of_library(library)).as_ref()
}

fn of_library(library: *mut c_void) -> Option<Driver> {
    let find = |name: &CStr| {
        // SAFETY: the library stays loaded, as it is never closed.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    // SAFETY: these are the functions' types in cuda.h.
    unsafe {
        Some(Driver {
            ask: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut c_void, CUpointer_attribute, u64) -> CUresult,
            >(find(c"cuPointerGetAttribute")?),
            push: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(CUcontext) -> CUresult>(
                find(c"cuCtxPushCurrent_v2")?,
            ),
            pop: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut CUcontext) -> CUresult>(
                find(c"cuCtxPopCurrent_v2")?,
            ),
            to_host: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut c_void, u64, usize) -> CUresult,
            >(find(c"cuMemcpyDtoH_v2")?),
            to_device: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(u64, *const c_void, usize) -> CUresult,
            >(find(c"cuMemcpyHtoD_v2")?),
            synchronize: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut c_void) -> CUresult,
            >(find(c"cuStreamSynchronize")?),
            current: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut CUcontext) -> CUresult,
            >(find(c"cuCtxGetCurrent")?),
            within: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(u64, u64, usize) -> CUresult,
            >(find(c"cuMemcpyDtoD_v2")?),
            initialize: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint) -> CUresult>(
                find(c"cuInit")?,
            ),
            primary: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut CUcontext, c_int) -> CUresult,
            >(find(c"cuDevicePrimaryCtxRetain")?),
            allocate: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut u64, usize) -> CUresult,
            >(find(c"cuMemAlloc_v2")?),
            free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> CUresult>(find(
                c"cuMemFree_v2",
            )?),
        })
    }
}

/// Memory of the device, or managed memory, which MPI cannot hand to the system either.
#[derive(Clone, Copy)]
pub(crate) struct DeviceMemory {
    address: u64,
    context: CUcontext,
    is_managed: bool,
}

impl DeviceMemory {
    /// What a buffer is, if it is no memory of the host.
    pub(crate) fn of(buffer: *const c_void) -> Option<DeviceMemory> {
        let driver = driver()?;
        let address = buffer as u64;
        let mut kind: c_uint = 0;
        // SAFETY: an attribute of an unsigned int is asked for.
        let found = unsafe {
            (driver.ask)(
                (&raw mut kind).cast(),
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                address,
            )
        };
        if found != CUresult::CUDA_SUCCESS {
            return None;
        }
        let mut is_managed: c_uint = 0;
        // SAFETY: as above; the driver writes a bool or an unsigned int.
        unsafe {
            (driver.ask)(
                (&raw mut is_managed).cast(),
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
                address,
            )
        };
        if kind != CUmemorytype::CU_MEMORYTYPE_DEVICE.0 && is_managed == 0 {
            return None;
        }
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: as above, and a context is a pointer.
        let found = unsafe {
            (driver.ask)(
                (&raw mut context).cast(),
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
                address,
            )
        };
        let is_managed = is_managed != 0;
        (found == CUresult::CUDA_SUCCESS).then_some(DeviceMemory { address, context, is_managed })
    }

    /// Its address, if only the device uses it.
    pub(crate) fn of_device_only(self) -> Option<u64> {
        (!self.is_managed).then_some(self.address)
    }

    fn at(self, offset: isize) -> u64 {
        self.address.wrapping_add_signed(offset as i64)
    }

    /// Copies from the device, after all work of the default stream.
    pub(crate) fn read(self, offset: isize, to: &mut [u8]) {
        // SAFETY: the bytes are there, and the driver checks the device's.
        self.with("read", |driver| unsafe {
            (driver.to_host)(to.as_mut_ptr().cast(), self.at(offset), to.len())
        });
    }

    /// Copies to the device; work of any stream that is queued from now on finds it there.
    pub(crate) fn write(self, offset: isize, from: &[u8]) {
        self.with("write", |driver| {
            // SAFETY: as above; the default stream is always there.
            unsafe {
                match (driver.to_device)(self.at(offset), from.as_ptr().cast(), from.len()) {
                    CUresult::CUDA_SUCCESS => (driver.synchronize)(std::ptr::null_mut()),
                    failed => failed,
                }
            }
        });
    }

    /// Copies on the device, after all work of the default stream. Returns when it is done.
    pub(crate) fn copy_from(self, offset: isize, from: DeviceMemory, bytes: u64) {
        self.with("copy", |driver| {
            // SAFETY: as above.
            unsafe {
                match (driver.within)(self.at(offset), from.address, bytes as usize) {
                    CUresult::CUDA_SUCCESS => (driver.synchronize)(std::ptr::null_mut()),
                    failed => failed,
                }
            }
        });
    }

    /// Memory for so many bytes, in the thread's context or that of the first device.
    pub(crate) fn allocate(bytes: u64) -> Result<Allocated, CUresult> {
        let driver = driver().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)?;
        let check = |result| match result {
            CUresult::CUDA_SUCCESS => Ok(()),
            error => Err(error),
        };
        let (mut context, mut before, mut address): (CUcontext, CUcontext, u64) =
            (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        // SAFETY: the driver writes to these places. The primary context stays, as a program's does
        // that uses the runtime.
        unsafe {
            let has_context = check((driver.current)(&mut context)).is_ok() && !context.is_null();
            if !has_context {
                check((driver.initialize)(0))?;
                check((driver.primary)(&mut context, 0))?;
            }
            check((driver.push)(context))?;
            let result = check((driver.allocate)(&mut address, bytes as usize));
            (driver.pop)(&mut before);
            result?;
        }
        Ok(Allocated(DeviceMemory { address, context, is_managed: false }))
    }

    /// Does something in the memory's own context, which need not be the thread's.
    fn with(self, what: &str, action: impl FnOnce(&Driver) -> CUresult) {
        let Some(driver) = driver() else { return };
        let mut before: CUcontext = std::ptr::null_mut();
        // SAFETY: the context is one that the driver has named.
        let mut result = unsafe { (driver.push)(self.context) };
        if result == CUresult::CUDA_SUCCESS {
            result = action(driver);
            // SAFETY: it was pushed above.
            unsafe { (driver.pop)(&mut before) };
        }
        if result != CUresult::CUDA_SUCCESS {
            fail(&format!("cannot {what} device memory of a message: CUDA's error {}", result.0));
        }
    }
}

/// Device memory of this library's.
pub(crate) struct Allocated(DeviceMemory);

impl Allocated {
    pub(crate) fn memory(&self) -> DeviceMemory {
        self.0
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: it was allocated, and nothing uses it any more.
        self.0.with("free", |driver| unsafe { (driver.free)(self.0.address) });
    }
}
