//! Links on their way.

use core::ffi::c_void;

use outboard_abi::{CUlinkState, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::jit::{JitLog, JitOptions};

use super::jit::{self, Options};
use super::modules::Part;
use super::objects::Handle;

/// Bytes of what was linked that travel in one answer.
const PIECE: usize = 1 << 20;

/// A link of the driver. It ends with the value, for which its context must be current.
pub(crate) struct Link {
    table: &'static Table,
    state: Handle<outboard_abi::CUlinkState_st>,
    /// The driver writes to the buffers until the link ends.
    options: Options,
    output: Option<Vec<u8>>,
}

impl Link {
    pub(crate) fn new(table: &'static Table, options: &JitOptions) -> Result<Link, CUresult> {
        let mut options = Options::with_logs(options)?;
        let mut state: CUlinkState = core::ptr::null_mut();
        call!(table, cuLinkCreate_v2(options.count(), options.keys(), options.values(), &raw mut state))?;
        Ok(Link { table, state: Handle::new(state), options, output: None })
    }

    pub(crate) fn add(&mut self, kind: u32, data: &Part, name: &str, options: &JitOptions) -> Result<(), CUresult> {
        let (mut options, name) = (Options::new(options)?, jit::name(name)?);
        call!(
            self.table,
            cuLinkAddData_v2(
                self.state.get(),
                outboard_abi::CUjitInputType_enum(kind),
                data.pointer().cast_mut(),
                data.len(),
                name.as_ptr(),
                options.count(),
                options.keys(),
                options.values(),
            )
        )
    }

    /// Links; the bytes of the image.
    pub(crate) fn complete(&mut self) -> Result<u64, CUresult> {
        let (mut image, mut bytes): (*mut c_void, usize) = (core::ptr::null_mut(), 0);
        call!(self.table, cuLinkComplete(self.state.get(), &raw mut image, &raw mut bytes))?;
        // SAFETY: the driver's image of that size, which lives as long as the link.
        let image = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) };
        self.output = Some(image.to_vec());
        Ok(bytes as u64)
    }

    /// A piece of the image.
    pub(crate) fn output(&self, offset: u64) -> Result<&[u8], CUresult> {
        let image = self.output.as_deref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let rest = usize::try_from(offset).ok().and_then(|offset| image.get(offset..));
        let rest = rest.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(&rest[..rest.len().min(PIECE)])
    }

    pub(crate) fn log(&self) -> JitLog {
        self.options.log()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = call!(self.table, cuLinkDestroy(self.state.get()));
    }
}
