//! Settings of core dumps.

use core::ffi::{c_char, c_int, c_void};

use outboard_abi::{CUcoredumpSettings, CUcoredumpSettings_enum as Setting, CUresult};

use crate::backend::{Backend, Result};
use crate::border::require;
use crate::process::{Front, Process};
use crate::{context, logs};

/// Bytes of a name with its final zero.
const NAME: usize = 1024;

/// A value as it crosses the border.
enum Value {
    Bool(bool),
    Int(c_int),
    Name(String),
}

impl Value {
    /// Bytes that the program's memory must have.
    fn size(&self) -> usize {
        match self {
            Value::Bool(_) => size_of::<bool>(),
            Value::Int(_) => size_of::<c_int>(),
            Value::Name(_) => NAME,
        }
    }
}

/// The names that dump files of this process would have.
fn default_name(kind: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{kind}.cuda.{}.{}", host.trim(), std::process::id())
}

fn get(front: &'static Front, setting: CUcoredumpSettings) -> Result<Value> {
    let settings = front.core_dumps.settings.lock();
    Ok(match setting {
        Setting::CU_COREDUMP_ENABLE_ON_EXCEPTION | Setting::CU_COREDUMP_ENABLE_USER_TRIGGER => {
            Value::Bool(false)
        }
        Setting::CU_COREDUMP_TRIGGER_HOST => Value::Bool(settings.trigger_host),
        Setting::CU_COREDUMP_LIGHTWEIGHT => Value::Bool(settings.lightweight),
        Setting::CU_COREDUMP_GENERATION_FLAGS => Value::Int(settings.flags),
        Setting::CU_COREDUMP_FILE => {
            Value::Name(settings.file.clone().unwrap_or_else(|| default_name("core")))
        }
        Setting::CU_COREDUMP_PIPE => {
            Value::Name(settings.pipe.clone().unwrap_or_else(|| default_name("corepipe")))
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

fn set(front: &'static Front, setting: CUcoredumpSettings, value: Value) -> Result<()> {
    let mut settings = front.core_dumps.settings.lock();
    match (setting, value) {
        (
            Setting::CU_COREDUMP_ENABLE_ON_EXCEPTION | Setting::CU_COREDUMP_ENABLE_USER_TRIGGER,
            Value::Bool(true),
        ) => {
            logs::because(
                "a core dump would be written where the device is; run the program there to have one",
            );
            return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
        }
        (Setting::CU_COREDUMP_TRIGGER_HOST, Value::Bool(value)) => settings.trigger_host = value,
        (Setting::CU_COREDUMP_LIGHTWEIGHT, Value::Bool(value)) => settings.lightweight = value,
        (Setting::CU_COREDUMP_GENERATION_FLAGS, Value::Int(value)) => settings.flags = value,
        (Setting::CU_COREDUMP_FILE, Value::Name(name)) => settings.file = Some(name),
        (Setting::CU_COREDUMP_PIPE, Value::Name(name)) => settings.pipe = Some(name),
        _ => {}
    }
    Ok(())
}

pub unsafe fn cuCoredumpGetAttributeGlobal<B: Backend>(
    process: &'static Process<B>,
    setting: CUcoredumpSettings,
    value: *mut c_void,
    size: *mut usize,
) -> Result<()> {
    require(!size.is_null())?;
    let found = get(process, setting)?;
    // SAFETY: the program's size.
    let room = unsafe { *size };
    if value.is_null() {
        // SAFETY: the program's size.
        unsafe { size.write(found.size()) };
        return Ok(());
    }
    // SAFETY: the program's memory, of the size that it says.
    unsafe {
        match found {
            Value::Bool(found) => {
                require(room >= size_of::<bool>())?;
                value.cast::<bool>().write(found);
            }
            Value::Int(found) => {
                require(room >= size_of::<c_int>())?;
                value.cast::<c_int>().write_unaligned(found);
            }
            Value::Name(name) => {
                require(room > name.len())?;
                core::ptr::copy_nonoverlapping(name.as_ptr(), value.cast(), name.len());
                value.cast::<c_char>().add(name.len()).write(0);
            }
        }
    }
    Ok(())
}

pub unsafe fn cuCoredumpSetAttributeGlobal<B: Backend>(
    process: &'static Process<B>,
    setting: CUcoredumpSettings,
    value: *mut c_void,
    size: *mut usize,
) -> Result<()> {
    require(!value.is_null() && !size.is_null())?;
    // SAFETY: the program's size.
    let room = unsafe { *size };
    // SAFETY: the program's memory, of the size that it says.
    let given = unsafe {
        match get(process, setting)? {
            Value::Bool(_) => {
                require(room >= size_of::<bool>())?;
                Value::Bool(value.cast::<u8>().read() != 0)
            }
            Value::Int(_) => {
                require(room >= size_of::<c_int>())?;
                Value::Int(value.cast::<c_int>().read_unaligned())
            }
            Value::Name(_) => {
                let bytes = std::slice::from_raw_parts(value.cast::<u8>(), room.min(NAME));
                let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                require(end < NAME)?;
                Value::Name(String::from_utf8_lossy(&bytes[..end]).into_owned())
            }
        }
    };
    set(process, setting, given)
}

pub unsafe fn cuCoredumpGetAttribute<B: Backend>(
    process: &'static Process<B>,
    setting: CUcoredumpSettings,
    value: *mut c_void,
    size: *mut usize,
) -> Result<()> {
    context::current(process)?;
    // SAFETY: as this function's.
    unsafe { cuCoredumpGetAttributeGlobal(process, setting, value, size) }
}

pub unsafe fn cuCoredumpSetAttribute<B: Backend>(
    process: &'static Process<B>,
    setting: CUcoredumpSettings,
    value: *mut c_void,
    size: *mut usize,
) -> Result<()> {
    context::current(process)?;
    // SAFETY: as this function's.
    unsafe { cuCoredumpSetAttributeGlobal(process, setting, value, size) }
}
