//! JIT options as the driver takes them, with buffers of the worker's own for what it writes.

use core::ffi::{c_char, c_uint, c_void};
use std::ffi::CString;

use outboard_abi::{CUjit_option, CUjit_option_enum as Jit, CUresult};
use outboard_wire::jit::{JitLog, JitOptions};

/// Bytes of each log that the driver's compiler may fill.
const LOG_BYTES: usize = 16 << 10;

/// Options and values, and all that the values point to. The driver may keep the addresses for as
/// long as a link lives.
pub(crate) struct Options {
    keys: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    info: Box<[u8]>,
    error: Box<[u8]>,
    _names: Vec<CString>,
    _arrays: Vec<Box<[u64]>>,
}

impl Options {
    /// With logs: for a load, or a whole link.
    pub(crate) fn with_logs(options: &JitOptions) -> Result<Options, CUresult> {
        let mut out = Options::new(options)?;
        (out.info, out.error) = (vec![0; LOG_BYTES].into(), vec![0; LOG_BYTES].into());
        for (key, value) in [
            (Jit::CU_JIT_INFO_LOG_BUFFER, out.info.as_mut_ptr() as u64),
            (Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, LOG_BYTES as u64),
            (Jit::CU_JIT_ERROR_LOG_BUFFER, out.error.as_mut_ptr() as u64),
            (Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES as u64),
        ] {
            out.push(key, value);
        }
        Ok(out)
    }

    /// Without logs: for one input of a link.
    pub(crate) fn new(options: &JitOptions) -> Result<Options, CUresult> {
        let mut out = Options {
            keys: Vec::new(),
            values: Vec::new(),
            info: Box::default(),
            error: Box::default(),
            _names: Vec::new(),
            _arrays: Vec::new(),
        };
        for (key, value) in &options.values {
            // Anything else could be taken for an address in this process.
            if !JitOptions::is_number(*key) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            out.push(outboard_abi::CUjit_option_enum(*key), *value);
        }
        if !options.symbols.is_empty() {
            let addresses = options.symbols.iter().map(|(_, address)| *address).collect();
            out.push_array(Jit::CU_JIT_GLOBAL_SYMBOL_ADDRESSES, addresses);
            let names = options.symbols.iter().map(|(name, _)| name);
            out.push_names(
                Jit::CU_JIT_GLOBAL_SYMBOL_NAMES,
                Jit::CU_JIT_GLOBAL_SYMBOL_COUNT,
                names,
            )?;
        }
        for (names, key, count) in [
            (
                &options.kernels,
                Jit::CU_JIT_REFERENCED_KERNEL_NAMES,
                Jit::CU_JIT_REFERENCED_KERNEL_COUNT,
            ),
            (
                &options.variables,
                Jit::CU_JIT_REFERENCED_VARIABLE_NAMES,
                Jit::CU_JIT_REFERENCED_VARIABLE_COUNT,
            ),
        ] {
            if !names.is_empty() {
                out.push_names(key, count, names.iter())?;
            }
        }
        Ok(out)
    }

    fn push(&mut self, key: CUjit_option, value: u64) {
        self.keys.push(key);
        self.values.push(value as *mut c_void);
    }

    fn push_array(&mut self, key: CUjit_option, words: Box<[u64]>) {
        self.push(key, words.as_ptr() as u64);
        self._arrays.push(words);
    }

    fn push_names<'a>(
        &mut self,
        key: CUjit_option,
        count: CUjit_option,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<(), CUresult> {
        let names: Vec<CString> = names
            .map(|name| CString::new(name.as_str()))
            .collect::<Result<_, _>>()
            .map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.push(count, names.len() as u64);
        self.push_array(key, names.iter().map(|name| name.as_ptr() as u64).collect());
        self._names.extend(names);
        Ok(())
    }

    pub(crate) fn count(&self) -> c_uint {
        self.keys.len() as c_uint
    }

    pub(crate) fn keys(&mut self) -> *mut CUjit_option {
        self.keys.as_mut_ptr()
    }

    pub(crate) fn values(&mut self) -> *mut *mut c_void {
        self.values.as_mut_ptr()
    }

    /// The driver's output so far.
    pub(crate) fn log(&self) -> JitLog {
        let low = |wanted: u32| {
            let index = self.keys.iter().position(|key| key.0 == wanted)?;
            Some(self.values[index] as u64 as u32)
        };
        JitLog {
            info: text(&self.info),
            error: text(&self.error),
            milliseconds: low(JitOptions::WALL_TIME).map_or(0.0, f32::from_bits),
            threads: low(JitOptions::THREADS_PER_BLOCK).unwrap_or(0),
        }
    }
}

/// A log up to its final zero.
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|byte: &u8| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

/// Names in C; null if there is none.
pub(crate) fn name(text: &str) -> Result<CString, CUresult> {
    CString::new(text).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

const _: () = assert!(size_of::<*const c_char>() == size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pointer_of_the_client_is_passed_on() {
        for option in [3, 5, 17, 18, 25, 27, 35, 1000, u32::MAX] {
            let options = JitOptions { values: vec![(option, 0x1234)], ..JitOptions::default() };
            assert_eq!(
                Options::new(&options).err(),
                Some(CUresult::CUDA_ERROR_INVALID_VALUE),
                "{option}"
            );
        }
    }

    #[test]
    fn names_become_arrays() {
        let symbols = vec![("a".to_owned(), 16), ("b".to_owned(), 32)];
        let options = Options::new(&JitOptions { symbols, ..JitOptions::default() }).unwrap();
        let at = |key: Jit| options.values[options.keys.iter().position(|k| *k == key).unwrap()];
        assert_eq!(at(Jit::CU_JIT_GLOBAL_SYMBOL_COUNT) as u64, 2);
        // SAFETY: two words and two strings, which `options` owns.
        unsafe {
            assert_eq!(*at(Jit::CU_JIT_GLOBAL_SYMBOL_ADDRESSES).cast::<u64>().add(1), 32);
            let second = *at(Jit::CU_JIT_GLOBAL_SYMBOL_NAMES).cast::<*const c_char>().add(1);
            assert_eq!(std::ffi::CStr::from_ptr(second), c"b");
        }
    }
}
