//! Options for the compiler and linker of a driver, and what these have to say.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// JIT options by value: nothing in them is an address of the client's memory that anybody follows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JitOptions {
    /// `CUjit_option` and its value, for those whose value is a number; see
    /// [`JitOptions::is_number`].
    pub values: Vec<(u32, u64)>,
    /// Variables that the image leaves undefined, and the device addresses they get:
    /// `CU_JIT_GLOBAL_SYMBOL_*`.
    pub symbols: Vec<(String, u64)>,
    /// `CU_JIT_REFERENCED_KERNEL_*`.
    pub kernels: Vec<String>,
    /// `CU_JIT_REFERENCED_VARIABLE_*`.
    pub variables: Vec<String>,
}

/// What a compilation or link came back with besides its outcome.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JitLog {
    /// Text for `CU_JIT_INFO_LOG_BUFFER`.
    pub info: String,
    /// Text for `CU_JIT_ERROR_LOG_BUFFER`: which kernel and which instruction, say.
    pub error: String,
    /// For `CU_JIT_WALL_TIME`.
    pub milliseconds: f32,
    /// For `CU_JIT_THREADS_PER_BLOCK`; 0 if it was not asked.
    pub threads: u32,
}

impl JitOptions {
    /// `CU_JIT_THREADS_PER_BLOCK`, whose value comes back changed.
    pub const THREADS_PER_BLOCK: u32 = 1;
    /// `CU_JIT_WALL_TIME`, whose value comes back only.
    pub const WALL_TIME: u32 = 2;

    /// Whether the value of this `CUjit_option` is a number. The others, and any that CUDA 13.0
    /// does not have, may be pointers.
    pub fn is_number(option: u32) -> bool {
        matches!(option, 0..=2 | 7..=16 | 20..=24 | 29..=34)
    }
}

impl Encode for JitOptions {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.values);
        writer.put(&self.symbols);
        writer.put(&self.kernels);
        writer.put(&self.variables);
    }
}

impl<'a> Decode<'a> for JitOptions {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(JitOptions {
            values: reader.get()?,
            symbols: reader.get()?,
            kernels: reader.get()?,
            variables: reader.get()?,
        })
    }
}

impl Encode for JitLog {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.info);
        writer.put(&self.error);
        writer.put(&self.milliseconds);
        writer.put(&self.threads);
    }
}

impl<'a> Decode<'a> for JitLog {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(JitLog {
            info: reader.get()?,
            error: reader.get()?,
            milliseconds: reader.get()?,
            threads: reader.get()?,
        })
    }
}
