//! JIT options as a program passes them: numbers to hand on, names to copy, and places to write to.

use core::ffi::{c_char, c_uint, c_void};

use outboard_abi::{CUjit_option, CUjit_option_enum as Jit, CUresult};

use crate::backend::{JitLog, JitOptions, Result};
use crate::border::{slice, text};

/// The options of one call.
#[derive(Default)]
pub(crate) struct Options {
    /// The options for the device's compiler and linker.
    pub(crate) given: JitOptions,
    places: Places,
}

/// Where results go.
#[derive(Clone, Copy, Default)]
pub(crate) struct Places {
    /// The program's array of values, in which some are replaced.
    values: usize,
    info: LogBuffer,
    error: LogBuffer,
    wall_time_at: Option<usize>,
    threads_at: Option<usize>,
}

#[derive(Clone, Copy, Default)]
struct LogBuffer {
    text: u64,
    bytes: u64,
    /// Index of the option whose value receives the bytes written.
    size_at: Option<usize>,
}

/// An array of the program's, whose length is another option.
#[derive(Default)]
struct Array {
    address: u64,
    count: u64,
}

impl Array {
    /// # Safety
    /// The array has `count` elements of type `T`.
    unsafe fn items<'a, T>(&self) -> Result<&'a [T]> {
        // Without the other option there is nothing that says how long it is.
        let count = if self.address == 0 { 0 } else { self.count };
        // SAFETY: by the contract above.
        unsafe { slice(self.address as *const T, count as usize) }
    }

    /// # Safety
    /// The array has `count` strings.
    unsafe fn strings(&self) -> Result<Vec<String>> {
        // SAFETY: by the contract above.
        unsafe {
            self.items::<*const c_char>()?.iter().map(|name| Ok(text(*name)?.to_owned())).collect()
        }
    }
}

impl Options {
    /// # Safety
    /// `options` and `values` are null or have `count` elements, whose values have the types that
    /// cuda.h gives them.
    pub(crate) unsafe fn read(
        count: c_uint,
        options: *const CUjit_option,
        values: *mut *mut c_void,
    ) -> Result<Options> {
        // SAFETY: by the contract above.
        let (keys, given) = unsafe {
            (slice(options, count as usize)?, slice(values.cast_const(), count as usize)?)
        };
        let mut out = Options {
            places: Places { values: values as usize, ..Places::default() },
            ..Options::default()
        };
        let (mut names, mut addresses, mut kernels, mut variables) =
            (Array::default(), Array::default(), Array::default(), Array::default());
        for (index, (option, value)) in keys.iter().zip(given).enumerate() {
            let value = *value as u64;
            // Numbers are 32 bits wide; the word's upper bytes may be anything.
            let number = value & 0xffff_ffff;
            match *option {
                Jit::CU_JIT_INFO_LOG_BUFFER => out.places.info.text = value,
                Jit::CU_JIT_ERROR_LOG_BUFFER => out.places.error.text = value,
                Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => out.places.info.set_size(number, index),
                Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => out.places.error.set_size(number, index),
                Jit::CU_JIT_GLOBAL_SYMBOL_NAMES => names.address = value,
                Jit::CU_JIT_GLOBAL_SYMBOL_ADDRESSES => addresses.address = value,
                Jit::CU_JIT_GLOBAL_SYMBOL_COUNT => {
                    (names.count, addresses.count) = (number, number)
                }
                Jit::CU_JIT_REFERENCED_KERNEL_NAMES => kernels.address = value,
                Jit::CU_JIT_REFERENCED_KERNEL_COUNT => kernels.count = number,
                Jit::CU_JIT_REFERENCED_VARIABLE_NAMES => variables.address = value,
                Jit::CU_JIT_REFERENCED_VARIABLE_COUNT => variables.count = number,
                Jit::CU_JIT_WALL_TIME => {
                    out.places.wall_time_at = Some(index);
                    out.given.values.push((option.0, 0));
                }
                option if JitOptions::is_number(option.0) => {
                    if option == Jit::CU_JIT_THREADS_PER_BLOCK {
                        out.places.threads_at = Some(index);
                    }
                    out.given.values.push((option.0, number));
                }
                // An unknown option could be a pointer, which has no meaning in another process.
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        // SAFETY: by the contract above.
        unsafe {
            let addresses = addresses.items::<u64>()?;
            out.given.symbols =
                names.strings()?.into_iter().zip(addresses.iter().copied()).collect();
            out.given.kernels = kernels.strings()?;
            out.given.variables = variables.strings()?;
        }
        Ok(out)
    }

    /// Whether there is a place for what is said of errors.
    pub(crate) fn has_error_log(&self) -> bool {
        self.places.has_error_log()
    }

    /// Where results go.
    pub(crate) fn places(&self) -> Places {
        self.places
    }
}

impl Places {
    /// Whether there is a place for what is said of errors.
    pub(crate) fn has_error_log(&self) -> bool {
        self.error.text != 0 && self.error.bytes != 0
    }

    /// Writes what the compiler or linker said into the program's buffers and values.
    ///
    /// # Safety
    /// The options passed to [`Options::read`] and their buffers are still valid.
    pub(crate) unsafe fn write(&self, log: &JitLog) {
        let values = self.values as *mut *mut c_void;
        for (buffer, text) in [(self.info, &log.info), (self.error, &log.error)] {
            if buffer.text == 0 || buffer.bytes == 0 {
                continue;
            }
            let count = text.len().min(buffer.bytes as usize - 1);
            // SAFETY: the program gave a buffer of that many bytes, and the size option's value to
            // be replaced.
            unsafe {
                core::ptr::copy_nonoverlapping(text.as_ptr(), buffer.text as *mut u8, count);
                (buffer.text as *mut u8).add(count).write(0);
                if let Some(index) = buffer.size_at {
                    values.add(index).write((count + 1) as *mut c_void);
                }
            }
        }
        if let Some(index) = self.wall_time_at {
            // SAFETY: the option's value is to be replaced, by a float in the word.
            unsafe { values.add(index).cast::<f32>().write(log.milliseconds) };
        }
        if let Some(index) = self.threads_at
            && log.threads != 0
        {
            // SAFETY: the option's value is to be replaced, by an unsigned int in the word.
            unsafe { values.add(index).cast::<c_uint>().write(log.threads) };
        }
    }
}

impl LogBuffer {
    fn set_size(&mut self, bytes: u64, index: usize) {
        self.bytes = bytes;
        self.size_at = Some(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[Jit], values: &mut [*mut c_void]) -> Result<Options> {
        // SAFETY: both have the length given, and the tests' values fit their options.
        unsafe { Options::read(options.len() as c_uint, options.as_ptr(), values.as_mut_ptr()) }
    }

    #[test]
    fn numbers_go_and_pointers_stay() {
        let mut text = [0x7fu8; 8];
        let options = [
            Jit::CU_JIT_MAX_REGISTERS,
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values =
            [0xffff_ffff_0000_0020_u64 as *mut c_void, text.as_mut_ptr().cast(), 8 as *mut c_void];
        let read = read(&options, &mut values).unwrap();
        assert_eq!(read.given.values, [(0, 32)], "an unsigned int, whatever lies above it");
        let log = JitLog { error: "too long for the buffer".into(), ..JitLog::default() };
        // SAFETY: everything is alive.
        unsafe { read.places().write(&log) };
        assert_eq!(&text, b"too lon\0");
        assert_eq!(values[2] as usize, 8);
    }

    #[test]
    fn results_replace_values() {
        let options = [Jit::CU_JIT_WALL_TIME, Jit::CU_JIT_THREADS_PER_BLOCK];
        let mut values = [core::ptr::null_mut(), 128 as *mut c_void];
        let read = read(&options, &mut values).unwrap();
        assert_eq!(read.given.values, [(2, 0), (1, 128)]);
        // SAFETY: everything is alive.
        unsafe {
            read.places().write(&JitLog { milliseconds: 1.5, threads: 96, ..JitLog::default() })
        };
        assert_eq!(values[0] as u64 as u32, 1.5f32.to_bits());
        assert_eq!(values[1] as u64 as u32, 96);
    }

    #[test]
    fn symbols_are_copied_by_name() {
        let names = [c"first".as_ptr(), c"second".as_ptr()];
        let addresses = [0x1000u64, 0x2000];
        let options = [
            Jit::CU_JIT_GLOBAL_SYMBOL_COUNT,
            Jit::CU_JIT_GLOBAL_SYMBOL_NAMES,
            Jit::CU_JIT_GLOBAL_SYMBOL_ADDRESSES,
        ];
        let mut values =
            [2 as *mut c_void, names.as_ptr() as *mut c_void, addresses.as_ptr() as *mut c_void];
        let read = read(&options, &mut values).unwrap();
        assert_eq!(
            read.given.symbols,
            [("first".to_owned(), 0x1000), ("second".to_owned(), 0x2000)]
        );
        assert!(read.given.values.is_empty());
    }

    #[test]
    fn an_unknown_option_is_refused() {
        let mut values = [0x1234 as *mut c_void];
        assert!(read(&[CUjit_option(99)], &mut values).is_err());
    }
}
