//! CUDA's checks of a launch before it is queued, and the parameter buffer.

use core::ffi::c_void;

use outboard_abi::{CUfunction_attribute as F, CUresult};

use crate::backend::{Backend, Result, UnifiedPtr};
use crate::border::{require, slice};
use crate::context::Here;
use crate::device::Limits;
use crate::function::Function;
use crate::logs::because;
use crate::memory::{find, share};
use crate::process::Process;

/// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER`, `_BUFFER_SIZE`.
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;
/// Kernels have 4 KiB of parameters, or 32,764 bytes from Volta on.
const MAX_PARAM_BYTES: usize = 32_764;

/// The shape of a launch.
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// Finds the mistakes that CUDA reports from the launch itself.
pub(crate) fn check(shape: &Shape, function: &Function, limits: &Limits) -> Result<()> {
    let within = |dims: [u32; 3], limits: [u32; 3]| {
        dims.iter().zip(limits).all(|(dim, limit)| *dim > 0 && *dim <= limit)
    };
    require(within(shape.grid, limits.grid))?;
    require(within(shape.block, limits.block))?;
    let threads: i64 = shape.block.iter().map(|dim| i64::from(*dim)).product();
    require(threads <= i64::from(limits.threads))?;
    if threads > i64::from(function.attribute(F::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?) {
        // Too many for the register file, or more than the kernel was declared for.
        let registers = threads * i64::from(function.attribute(F::CU_FUNC_ATTRIBUTE_NUM_REGS)?);
        let enough = registers <= i64::from(limits.registers);
        let error = if enough {
            CUresult::CUDA_ERROR_INVALID_VALUE
        } else {
            CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        };
        return Err(error);
    }
    let opted_in = function.attribute(F::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
    require(i64::from(shape.shared) <= i64::from(opted_in))
}

/// Gives a kernel's device the memory among its parameters that another server's device shares with
/// the program.
#[inline]
pub(crate) fn share_params<B: Backend>(
    process: &'static Process<B>,
    function: &Function,
    here: &Here,
    params: &[u8],
) -> Result<()> {
    // Most parameters are numbers and addresses of device memory, and are not looked up.
    if process.memory.shared.contain_any(params) {
        share_each(process, function, here, params)
    } else {
        Ok(())
    }
}

#[cold]
fn share_each<B: Backend>(
    process: &'static Process<B>,
    function: &Function,
    here: &Here,
    params: &[u8],
) -> Result<()> {
    for (index, word) in params.as_chunks().0.iter().enumerate() {
        let address = UnifiedPtr(u64::from_ne_bytes(*word));
        let Some((_, _, at)) = find(process, address) else { continue };
        let outcome = share(process, here.id, address, &at);
        let is_parameter = (function.info.params.iter())
            .any(|(offset, size)| (*offset as usize, *size) == (index * word.len(), 8));
        match outcome {
            // Within a structure it need not be an address.
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) if !is_parameter => {}
            Err(error) => {
                because(format!(
                    "the kernel {} has a parameter with memory that was made for device {}, which \
                     its own server cannot use (servers {} and {} of the program's list, counted \
                     from 1): allocate it while the kernel's device is current, or copy it",
                    function.name().to_string_lossy(),
                    at.device,
                    here.id.server().place() + 1,
                    at.server.place() + 1,
                ));
                return Err(error);
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Gathers the parameters into the layout of the kernel, or takes the buffer that the program has
/// laid out, and passes them on.
///
/// # Safety
/// `params` is null or has a pointer for each parameter of the kernel; `extra` is null or a list as
/// cuda.h describes it.
pub(crate) unsafe fn with_params<R>(
    function: &Function,
    params: *const *mut c_void,
    extra: *const *mut c_void,
    run: impl FnOnce(&[u8]) -> Result<R>,
) -> Result<R> {
    // SAFETY: by the contract above, a list has its end at least.
    if !extra.is_null() && (params.is_null() || unsafe { extra.read() } as usize != EXTRA_END) {
        require(params.is_null())?;
        // SAFETY: by the contract above.
        return run(unsafe { buffer_of(extra) }?);
    }
    if function.info.params.is_empty() {
        return run(&[]);
    }
    require(!params.is_null())?;
    const INLINE: usize = 256;
    let mut small = [0u8; INLINE];
    let mut large = Vec::new();
    let buffer: &mut [u8] = if function.param_bytes <= INLINE {
        &mut small[..function.param_bytes]
    } else {
        require(function.param_bytes <= MAX_PARAM_BYTES)?;
        large.resize(function.param_bytes, 0);
        &mut large
    };
    for (index, (offset, size)) in function.info.params.iter().enumerate() {
        // SAFETY: the program gives one pointer for each parameter.
        let param = unsafe { params.add(index).read() }.cast_const().cast::<u8>();
        let (at, len) = (*offset as usize, *size as usize);
        // `param_bytes` is where the last one ends.
        require(!param.is_null() && at + len <= buffer.len())?;
        // SAFETY: the program points to a value of the parameter's type, whose size the image
        // gives, and the buffer has room for it. Most are of two sizes, for which a copy of any
        // size takes much longer than a number that is read and written.
        unsafe {
            let target = buffer.as_mut_ptr().add(at);
            match len {
                8 => target.cast::<u64>().write_unaligned(param.cast::<u64>().read_unaligned()),
                4 => target.cast::<u32>().write_unaligned(param.cast::<u32>().read_unaligned()),
                len => core::ptr::copy_nonoverlapping(param, target, len),
            }
        }
    }
    run(buffer)
}

/// The buffer that an `extra` list names.
///
/// # Safety
/// `extra` is a list as cuda.h describes it.
unsafe fn buffer_of<'a>(extra: *const *mut c_void) -> Result<&'a [u8]> {
    let (mut data, mut bytes) = (core::ptr::null::<u8>(), 0usize);
    let mut at = extra;
    for _ in 0..4 {
        // SAFETY: the list ends in `CU_LAUNCH_PARAM_END`, which has not been met yet.
        unsafe {
            match at.read() as usize {
                EXTRA_END => break,
                EXTRA_POINTER => data = at.add(1).read().cast_const().cast(),
                EXTRA_SIZE => {
                    let size = at.add(1).read().cast_const().cast::<usize>();
                    require(!size.is_null())?;
                    bytes = size.read();
                }
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
            at = at.add(2);
        }
    }
    require(bytes <= MAX_PARAM_BYTES)?;
    // SAFETY: the program's buffer.
    unsafe { slice(data, bytes) }
}
