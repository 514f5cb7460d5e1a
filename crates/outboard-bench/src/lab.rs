//! What measurements of driver calls work with: a driver library, a context, a stream and two
//! kernels.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr;

use outboard_abi::*;
use outboard_driver::{Library, Table, call};

/// The driver library, as the loader finds it.
pub(crate) const DRIVER: &str = "libcuda.so.1";

/// A kernel that does nothing, and one that takes as many nanoseconds as it is told.
const KERNELS: &CStr = c"
.version 7.0
.target sm_75
.address_size 64

.visible .entry nothing()
{
    ret;
}

.visible .entry take(.param .u64 nanoseconds)
{
    .reg .u64 %start, %now, %passed, %wanted;
    .reg .pred %more;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %start;
    setp.lt.u64 %more, %passed, %wanted;
    @%more bra again;
    ret;
}
";

/// Why a measurement cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LabError {
    #[error(transparent)]
    Load(#[from] outboard_driver::LoadError),
    #[error("{function} returned error {}", .error.0)]
    Call { function: &'static str, error: CUresult },
    #[error("{0}")]
    Wrong(String),
    #[error("memory cannot be mapped: {0}")]
    Memory(#[from] rustix::io::Errno),
}

impl LabError {
    /// The driver library lacks something, which is no fault.
    pub(crate) fn is_lack(&self) -> bool {
        matches!(self, LabError::Call { error: CUresult::CUDA_ERROR_NOT_SUPPORTED, .. })
    }
}

pub(crate) type Result<T> = std::result::Result<T, LabError>;

/// Calls a driver function and names it in the error.
macro_rules! driver {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        outboard_driver::call!($table, $function($($argument),*))
            .map_err(|error| $crate::lab::LabError::Call { function: stringify!($function), error })
    };
}
pub(crate) use driver;

/// Loads the driver library that the loader finds.
pub(crate) fn load() -> Result<Table> {
    // SAFETY: the program that measures put a driver library where the loader finds this name
    // first.
    Ok(unsafe { Library::load(Path::new(DRIVER)) }?.table)
}

/// The first device and its primary context, made the calling thread's.
pub(crate) fn context(table: Table) -> Result<(CUdevice, CUcontext)> {
    let (mut device, mut context) = (0, ptr::null_mut());
    driver!(table, cuDeviceGet(&mut device, 0))?;
    driver!(table, cuDevicePrimaryCtxRetain(&mut context, device))?;
    driver!(table, cuCtxSetCurrent(context))?;
    Ok((device, context))
}

/// The two kernels.
pub(crate) fn kernels(table: Table) -> Result<(CUfunction, CUfunction)> {
    let (mut module, mut nothing, mut take) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    driver!(table, cuModuleLoadData(&mut module, KERNELS.as_ptr().cast()))?;
    driver!(table, cuModuleGetFunction(&mut nothing, module, c"nothing".as_ptr()))?;
    driver!(table, cuModuleGetFunction(&mut take, module, c"take".as_ptr()))?;
    Ok((nothing, take))
}

/// A stream that waits for no other.
pub(crate) fn stream(table: Table) -> Result<CUstream> {
    let mut stream = ptr::null_mut();
    driver!(table, cuStreamCreate(&mut stream, CUstream_flags_enum::CU_STREAM_NON_BLOCKING.0))?;
    Ok(stream)
}

/// Everything set up. A copy of it is as good: these are handles.
#[derive(Clone, Copy)]
pub(crate) struct Lab {
    pub(crate) table: Table,
    pub(crate) device: CUdevice,
    pub(crate) context: CUcontext,
    pub(crate) stream: CUstream,
    nothing: CUfunction,
    take: CUfunction,
}

// SAFETY: the driver's handles may be used from any thread of the process.
unsafe impl Send for Lab {}
// SAFETY: as above; the fields are never changed.
unsafe impl Sync for Lab {}

impl Lab {
    /// Loads the driver and sets up the first device.
    pub(crate) fn open() -> Result<Lab> {
        let table = load()?;
        driver!(table, cuInit(0))?;
        let (device, context) = context(table)?;
        let (nothing, take) = kernels(table)?;
        let stream = stream(table)?;
        Ok(Lab { table, device, context, stream, nothing, take })
    }

    /// Queues the kernel that does nothing.
    #[inline]
    pub(crate) fn launch(&self) -> Result<()> {
        self.queue(self.nothing, ptr::null_mut())
    }

    /// Queues a kernel that takes this long.
    pub(crate) fn launch_taking(&self, nanoseconds: u64) -> Result<()> {
        let mut wanted = nanoseconds;
        let mut arguments = [(&raw mut wanted).cast::<c_void>()];
        self.queue(self.take, arguments.as_mut_ptr())
    }

    #[inline]
    fn queue(&self, kernel: CUfunction, arguments: *mut *mut c_void) -> Result<()> {
        driver!(
            self.table,
            cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, arguments, ptr::null_mut())
        )
    }

    /// Waits for the stream.
    #[inline]
    pub(crate) fn wait(&self) -> Result<()> {
        driver!(self.table, cuStreamSynchronize(self.stream))
    }

    /// Waits for everything that is queued.
    pub(crate) fn settle(&self) -> Result<()> {
        driver!(self.table, cuCtxSynchronize())
    }

    /// Makes the context the calling thread's.
    pub(crate) fn enter(&self) -> Result<()> {
        driver!(self.table, cuCtxSetCurrent(self.context))
    }

    /// Device memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<CUdeviceptr> {
        let mut address = 0;
        driver!(self.table, cuMemAlloc_v2(&mut address, bytes))?;
        Ok(address)
    }

    /// Gives device memory back.
    pub(crate) fn free(&self, address: CUdeviceptr) -> Result<()> {
        driver!(self.table, cuMemFree_v2(address))
    }

    /// A kernel with the library it is in, for questions about it.
    pub(crate) fn library_kernel(&self) -> Result<CUkernel> {
        let (mut library, mut kernel) = (ptr::null_mut(), ptr::null_mut());
        let none = ptr::null_mut();
        driver!(
            self.table,
            cuLibraryLoadData(
                &mut library,
                KERNELS.as_ptr().cast(),
                ptr::null_mut(),
                none,
                0,
                ptr::null_mut(),
                ptr::null_mut(),
                0
            )
        )?;
        driver!(self.table, cuLibraryGetKernel(&mut kernel, library, c"nothing".as_ptr()))?;
        Ok(kernel)
    }
}

/// Name of the first device and CUDA's version, for the description of the machine.
pub(crate) fn describe(table: Table, device: CUdevice) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let mut name = [0; 256];
    if call!(table, cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device)).is_ok() {
        // SAFETY: the driver ends the name with a zero within the buffer, whose last byte stays
        // zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        facts.push(("device", name.to_string_lossy().into_owned()));
    }
    let mut version = 0;
    if call!(table, cuDriverGetVersion(&mut version)).is_ok() {
        facts.push(("CUDA", format!("{}.{}", version / 1000, version % 1000 / 10)));
    }
    facts
}
