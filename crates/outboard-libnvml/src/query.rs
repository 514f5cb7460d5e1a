//! Functions that are forwarded by their description.

use std::ffi::{CStr, c_void};

use outboard_abi::nvml::{nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t, nvmlReturn_t};
use outboard_nvml::{FUNCTIONS, Function, Given, LARGEST, Param, encode, versioned_size};
use outboard_wire::{Reader, Writer};

use crate::border::{INVALID, Result, put};
use crate::machine::{DevicePosition, Machine};
use crate::{device, pci, session};

/// An argument as the program passes it.
#[derive(Clone, Copy)]
pub(crate) enum Argument {
    Number(u64),
    /// A pointer, or the handle of a device.
    Pointer(*mut c_void),
}

use Argument::{Number, Pointer};

/// Asks whoever knows.
///
/// # Safety
/// The arguments are those of `FUNCTIONS[function]`, as NVML wants them.
pub(crate) unsafe fn forward(function: usize, arguments: &[Argument]) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: by the contract above.
    unsafe { ask(&machine, &FUNCTIONS[function], arguments) }
}

/// What would change the server's GPU.
pub(crate) fn refused() -> Result<()> {
    session::require_initialised()?;
    Err(nvmlReturn_t::NVML_ERROR_NO_PERMISSION)
}

/// What is not there.
pub(crate) fn unsupported() -> Result<()> {
    session::require_initialised()?;
    Err(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED)
}

/// Asks the source that has the devices.
///
/// # Safety
/// The arguments are those of the function, as NVML wants them.
pub(crate) unsafe fn ask(
    machine: &Machine,
    function: &Function,
    arguments: &[Argument],
) -> Result<()> {
    let Some(source) = source_of(machine, function, arguments)? else {
        // SAFETY: by the contract above.
        return unsafe { between_servers(function, arguments) };
    };
    // SAFETY: by the contract above.
    let given = unsafe { read(machine, function, arguments) }?;
    let mut writer = Writer::new();
    encode(function, &given, &mut writer);
    let (status, results) = machine.query(source, function.name, writer.as_slice())?;
    let done = status == nvmlReturn_t::NVML_SUCCESS;
    if done || status == nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE {
        // SAFETY: by the contract above.
        unsafe { write(function, arguments, &results, done) }
            .ok_or(nvmlReturn_t::NVML_ERROR_UNKNOWN)?;
    }
    if !done {
        return Err(status);
    }
    // SAFETY: by the contract above, and the function has succeeded.
    unsafe { pci::correct(machine, function, arguments) };
    Ok(())
}

/// The source whose devices are asked about: the first one if none is named, `None` for devices of
/// several.
fn source_of(
    machine: &Machine,
    function: &Function,
    arguments: &[Argument],
) -> Result<Option<usize>> {
    let mut source = None;
    for (param, argument) in function.params.iter().zip(arguments) {
        let (Param::Device, Pointer(handle)) = (param, argument) else { continue };
        let DevicePosition { source: this, .. } = device::place(machine, handle.cast())?;
        if source.is_some_and(|other| other != this) {
            return Ok(None);
        }
        source = Some(this);
    }
    Ok(Some(source.unwrap_or(0)))
}

/// Answers for devices of two servers: they cannot reach each other, and nothing nearer than the
/// system connects them.
///
/// # Safety
/// As of [`ask`].
unsafe fn between_servers(function: &Function, arguments: &[Argument]) -> Result<()> {
    let answer = match function.name {
        "nvmlDeviceGetP2PStatus" => nvmlGpuP2PStatus_t::NVML_P2P_STATUS_NOT_SUPPORTED.0,
        "nvmlDeviceGetTopologyCommonAncestor" => nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SYSTEM.0,
        _ => return Err(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED),
    };
    match arguments.last() {
        // SAFETY: null or valid, by the contract: both write one number there.
        Some(Pointer(out)) => unsafe { put(out.cast(), answer) },
        _ => Err(INVALID),
    }
}

/// What the function reads.
///
/// # Safety
/// As of [`ask`]. The result borrows what the arguments point to.
unsafe fn read<'a>(
    machine: &Machine,
    function: &Function,
    arguments: &[Argument],
) -> Result<Vec<Given<'a>>> {
    let mut given = Vec::with_capacity(arguments.len());
    for (param, argument) in function.params.iter().zip(arguments) {
        given.push(match (*param, *argument) {
            (Param::Device, Pointer(handle)) => Given::Device(device::place(machine, handle.cast())?.index),
            // No text is longer than this, however much room a program says it has for it.
            (_, Number(number)) if measures_text(function, given.len()) => Given::Number(number.min(LARGEST as u64)),
            (_, Number(number)) => Given::Number(number),
            (_, Pointer(pointer)) if pointer.is_null() => Given::Null,
            // SAFETY: not null, and then a string, by the contract.
            (Param::Text, Pointer(pointer)) => Given::Text(unsafe { CStr::from_ptr(pointer.cast()) }),
            (param, Pointer(pointer)) => {
                // SAFETY: by the contract; a version stands before anything else.
                let bytes = unsafe { bytes_read(function, arguments, param, pointer) };
                if let Param::Array { count, size, .. } = param
                    // SAFETY: by the contract.
                    && unsafe { elements(function, arguments, count) }.saturating_mul(size) > LARGEST
                {
                    return Err(INVALID);
                }
                if bytes > LARGEST {
                    return Err(INVALID);
                }
                // SAFETY: the function reads as many bytes there.
                Given::Memory(unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), bytes) })
            }
        });
    }
    Ok(given)
}

/// Whether a parameter is the room for a string.
fn measures_text(function: &Function, index: usize) -> bool {
    function.params.contains(&Param::Buffer { length: index })
}

/// A server's string as it is put where there is so much room: one that ends there, and controls no
/// terminal.
fn text(bytes: &[u8], room: usize) -> Vec<u8> {
    let mut text = bytes.to_vec();
    if !text.contains(&0) {
        text.truncate(room.saturating_sub(1));
        text.resize(room.min(text.len() + 1), 0);
    }
    text.iter_mut().for_each(make_plain);
    text
}

/// Replaces a character that could control a terminal.
fn make_plain(byte: &mut u8) {
    if *byte != 0 && !(0x20..0x7f).contains(byte) {
        *byte = b'?';
    }
}

/// The strings of a server in the structures that one parameter is written with: each ends within
/// its room, and controls no terminal. Structures of another release than the one described have
/// their strings elsewhere, and stay as they are.
fn make_texts_plain(function: &Function, param: usize, bytes: &mut [u8]) {
    for text in function.texts.iter().filter(|text| text.param == param) {
        for element in bytes.chunks_exact_mut(text.element) {
            let field = &mut element[text.offset..text.offset + text.room];
            field.iter_mut().for_each(make_plain);
            if !field.contains(&0) {
                field[text.room - 1] = 0;
            }
        }
    }
}

/// How many bytes the function reads behind a pointer.
///
/// # Safety
/// As of [`ask`], and the pointer is the argument for `param` and not null.
unsafe fn bytes_read(
    function: &Function,
    arguments: &[Argument],
    param: Param,
    pointer: *mut c_void,
) -> usize {
    match param {
        Param::Input { size } | Param::Both { size } => size,
        Param::Versioned { size } => {
            // SAFETY: such a structure begins with its version; it need not be aligned for us.
            versioned_size(unsafe { pointer.cast::<u32>().read_unaligned() }, size)
        }
        Param::Count => 4,
        Param::Array { count, size, both: true } => {
            // SAFETY: by the contract above.
            unsafe { elements(function, arguments, count) }.saturating_mul(size)
        }
        _ => 0,
    }
}

/// How many elements there is room for.
///
/// # Safety
/// As of [`ask`].
unsafe fn elements(function: &Function, arguments: &[Argument], count: usize) -> usize {
    match (function.params[count], arguments[count]) {
        (_, Number(number)) => number as u32 as usize,
        (Param::Count, Pointer(pointer)) if !pointer.is_null() => {
            // SAFETY: the address of an unsigned int, by the contract.
            unsafe { pointer.cast::<u32>().read_unaligned() as usize }
        }
        _ => 0,
    }
}

/// Stores what came back: all of it if the function is done, else how much room it wants. `None` if
/// it is not what was asked for.
///
/// # Safety
/// As of [`ask`].
unsafe fn write(
    function: &Function,
    arguments: &[Argument],
    results: &[u8],
    done: bool,
) -> Option<()> {
    // How much room there is must be known before a count is overwritten.
    let mut outputs = Vec::new();
    for (index, (param, argument)) in function.params.iter().zip(arguments).enumerate() {
        let Pointer(pointer) = *argument else { continue };
        if !param.is_output() || pointer.is_null() {
            continue;
        }
        let room = match *param {
            Param::Out { size } => size,
            // SAFETY: by the contract above.
            Param::Buffer { length } => unsafe { elements(function, arguments, length) },
            Param::Array { count, size, .. } => {
                // SAFETY: as above.
                unsafe { elements(function, arguments, count) }.saturating_mul(size)
            }
            // SAFETY: as above, and it is not null.
            param => unsafe { bytes_read(function, arguments, param, pointer) },
        };
        let stored = done || matches!(param, Param::Count | Param::Versioned { .. });
        let is_text = matches!(param, Param::Buffer { .. });
        outputs.push((index, pointer, room, stored, is_text));
    }
    let mut reader = Reader::new(results);
    for (index, pointer, room, stored, is_text) in outputs {
        let bytes = reader.bytes().ok().filter(|bytes| bytes.len() <= room)?;
        let mut bytes = if is_text { text(bytes, room) } else { bytes.to_vec() };
        make_texts_plain(function, index, &mut bytes);
        if stored {
            // SAFETY: the function writes up to `room` bytes there, by the contract.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
        }
    }
    reader.finish().ok()
}

#[cfg(test)]
mod tests {
    use outboard_nvml::find;

    use super::{make_texts_plain, text};

    #[test]
    fn strings_end_where_they_must_and_control_no_terminal() {
        assert_eq!(text(b"GPU\x1b[2J\x9b\0", 96), b"GPU?[2J?\0");
        assert_eq!(text(b"abc", 96), b"abc\0");
        assert_eq!(text(b"abc", 3), b"ab\0");
        assert_eq!(text(b"", 1), b"\0");
        assert_eq!(text(b"", 0), b"");
    }

    #[test]
    fn so_do_strings_in_structures() {
        let function = find("nvmlDeviceGetPciInfo_v3").expect("it is forwarded");
        let [legacy, id] = function.texts else { panic!("{:?}", function.texts) };
        let mut bytes = vec![0x1b; legacy.element];
        make_texts_plain(function, legacy.param, &mut bytes);
        for text in [legacy, id] {
            let field = &bytes[text.offset..text.offset + text.room];
            assert_eq!(
                (&field[..text.room - 1], field[text.room - 1]),
                (&vec![b'?'; text.room - 1][..], 0)
            );
        }
        let others = bytes.iter().filter(|byte| **byte == 0x1b).count();
        assert_eq!(others, legacy.element - legacy.room - id.room, "numbers stay as they are");
        let mut another = vec![0x1b; legacy.element - 1];
        make_texts_plain(function, legacy.param, &mut another);
        assert!(another.iter().all(|byte| *byte == 0x1b), "a structure of another release");
    }
}
