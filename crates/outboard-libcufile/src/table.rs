//! What this library needs of the driver library: Outboard's private table of files, and some
//! functions of CUDA.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use std::sync::OnceLock;

use outboard_abi::CUstream;
use outboard_abi::own_tables::FILES;

use crate::status::{Failure, Result, code};

/// The second word of a table whose functions are those below.
const FORM: usize = 1;
/// Words of the table.
const WORDS: usize = 8;

type Open = unsafe extern "C" fn(c_int, u32, *mut u64) -> c_int;
type Of = unsafe extern "C" fn(u64) -> c_int;
type Transfer = unsafe extern "C" fn(u64, u64, usize, i64, *mut isize) -> u32;

/// Outboard's functions.
pub(crate) struct Table {
    open: Open,
    close: Of,
    read: Transfer,
    write: Transfer,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

/// The table, once it has been found.
pub(crate) fn table() -> Result<&'static Table> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(table);
    }
    let found = find().ok_or(Failure::Code(code::DRIVER_NOT_INITIALIZED));
    if found.is_err() {
        tell();
    }
    let found = found?;
    Ok(TABLE.get_or_init(|| found))
}

fn find() -> Option<Table> {
    let words = outboard_table::find(&FILES)?;
    let &[_, FORM, open, close, read, write, ..] = words else { return None };
    if words.len() != WORDS {
        return None;
    }
    // SAFETY: these are the functions that stand there, in this form.
    unsafe {
        Some(Table {
            open: transmute::<usize, Open>(open),
            close: transmute::<usize, Of>(close),
            read: transmute::<usize, Transfer>(read),
            write: transmute::<usize, Transfer>(write),
        })
    }
}

/// What is said, once, to those who ask for it.
const NO_DRIVER: &str = "this libcufile.so.0 is Outboard's, but the process has not Outboard's libcuda.so.1 of the same release: start the program with `outboard run`";

/// Says why nothing works, where cuFile's users have asked it to talk.
fn tell() {
    static TOLD: std::sync::Once = std::sync::Once::new();
    if std::env::var_os("CUFILE_LOGGING_LEVEL").is_some() {
        TOLD.call_once(|| outboard_threads::say(format_args!("cuFile: {NO_DRIVER}")));
    }
}

impl Table {
    /// Opens the file of a descriptor.
    pub(crate) fn open(&self, fd: c_int, writable: bool) -> Result<u64> {
        let mut file = 0;
        // SAFETY: a place for the file.
        match unsafe { (self.open)(fd, writable.into(), &raw mut file) } {
            0 => Ok(file),
            _ => Err(Failure::Code(code::GETNEWFD_FAILED)),
        }
    }

    pub(crate) fn close(&self, file: u64) {
        // SAFETY: any number may be passed.
        unsafe { (self.close)(file) };
    }

    /// Moves bytes between a file and memory.
    ///
    /// # Safety
    /// If the memory is the host's, it is the program's for this transfer.
    pub(crate) unsafe fn transfer(
        &self,
        way: Way,
        file: u64,
        (address, bytes): (u64, usize),
        offset: i64,
    ) -> Result<usize> {
        let function = match way {
            Way::Read => self.read,
            Way::Write => self.write,
        };
        let mut moved = 0;
        // SAFETY: a place for the result; the memory by the contract above.
        match unsafe { function(file, address, bytes, offset, &raw mut moved) } {
            0 => usize::try_from(moved).map_err(|_| Failure::File(-moved as i32)),
            error => Err(Failure::Cuda(error)),
        }
    }
}

/// A function of CUDA; without it, the driver library is none.
fn cuda(name: &CStr) -> Result<*mut c_void> {
    let found = outboard_table::function(name).map(|found| found.as_ptr());
    found.ok_or(Failure::Code(code::DRIVER_NOT_INITIALIZED))
}

fn success(result: u32) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Failure::Cuda(result)) }
}

/// `cuInit`.
pub(crate) fn init() -> Result<()> {
    type Init = unsafe extern "C" fn(u32) -> u32;
    // SAFETY: the function of that name.
    success(unsafe { transmute::<*mut c_void, Init>(cuda(c"cuInit")?)(0) })
}

/// Whether work in a stream becomes part of a graph.
pub(crate) fn is_capturing(stream: CUstream) -> Result<bool> {
    type IsCapturing = unsafe extern "C" fn(CUstream, *mut u32) -> u32;
    let function = cuda(c"cuStreamIsCapturing")?;
    let mut state = 0;
    // SAFETY: the function of that name, which checks the stream.
    success(unsafe { transmute::<*mut c_void, IsCapturing>(function)(stream, &raw mut state) })?;
    Ok(state != 0)
}

/// `cuLaunchHostFunc`, with a number in place of an address.
pub(crate) fn call_in(
    stream: CUstream,
    function: unsafe extern "C" fn(*mut c_void),
    number: usize,
) -> Result<()> {
    type Launch =
        unsafe extern "C" fn(CUstream, unsafe extern "C" fn(*mut c_void), *mut c_void) -> u32;
    let launch = cuda(c"cuLaunchHostFunc")?;
    // SAFETY: the function of that name, which checks the stream; nothing looks behind the number.
    success(unsafe {
        transmute::<*mut c_void, Launch>(launch)(stream, function, number as *mut c_void)
    })
}

/// How many devices there are.
pub(crate) fn devices() -> Result<i32> {
    type Count = unsafe extern "C" fn(*mut c_int) -> u32;
    let mut count = 0;
    // SAFETY: the function of that name, with a place.
    success(unsafe {
        transmute::<*mut c_void, Count>(cuda(c"cuDeviceGetCount")?)(&raw mut count)
    })?;
    Ok(count)
}

/// The bytes of memory that a device has.
pub(crate) fn memory_of(device: i32) -> Result<usize> {
    type Total = unsafe extern "C" fn(*mut usize, c_int) -> u32;
    let mut bytes = 0;
    // SAFETY: the function of that name, with a place.
    success(unsafe {
        transmute::<*mut c_void, Total>(cuda(c"cuDeviceTotalMem_v2")?)(&raw mut bytes, device)
    })?;
    Ok(bytes)
}

/// The identity of a device.
pub(crate) fn uuid_of(device: i32) -> Result<[u8; 16]> {
    type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> u32;
    let mut uuid = [0; 16];
    // SAFETY: the function of that name, with a place.
    success(unsafe {
        transmute::<*mut c_void, Uuid>(cuda(c"cuDeviceGetUuid")?)(&raw mut uuid, device)
    })?;
    Ok(uuid)
}

/// The device that has the memory at an address.
pub(crate) fn device_at(address: u64) -> Result<i32> {
    type Attribute = unsafe extern "C" fn(*mut c_int, u32, u64) -> u32;
    /// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
    const DEVICE_ORDINAL: u32 = 9;
    let (function, mut device) = (cuda(c"cuPointerGetAttribute")?, 0);
    // SAFETY: the function of that name, with a place.
    success(unsafe {
        transmute::<*mut c_void, Attribute>(function)(&raw mut device, DEVICE_ORDINAL, address)
    })?;
    Ok(device)
}
