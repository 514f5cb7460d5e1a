//! Images: received in pieces, handed to the driver whole.

use core::ffi::c_void;
use std::ffi::{CStr, CString};

use outboard_abi::{CUfunction, CUlibrary, CUmodule, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::DevicePtr;
use outboard_wire::jit::{JitLog, JitOptions};
use outboard_wire::platform::KernelInfo;

use super::jit::Options;
use super::objects::Handle;
use super::part::Part;

/// The largest image that is accepted, all parts together.
pub(super) const MAX_IMAGE: usize = 2 << 30;
/// `CU_FUNC_ATTRIBUTE_MAX` and some room.
const ATTRIBUTES: u32 = 16;
/// Of modules with so many kernels all are described when they are loaded. The driver may have to
/// load them for that: of larger ones, programs may need few.
const MOST_DESCRIBED: u32 = 4;
/// More parameters than a kernel can have.
const MAX_PARAMS: usize = 32 << 10;

/// The wrapper in which a runtime passes several containers.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const c_void,
    others: *const *const c_void,
}

/// An image on its way in.
#[derive(Default)]
pub(crate) struct Upload {
    received: Part,
    /// Why it is refused. Its pieces have no answers: who takes the image gets the error.
    refused: Option<CUresult>,
}

/// A loaded image.
#[derive(Clone, Copy)]
pub(crate) struct Module {
    module: Handle<outboard_abi::CUmod_st>,
    /// The linked image, of a module that had to be linked first.
    library: Option<Handle<outboard_abi::CUlib_st>>,
}

impl Module {
    pub(crate) fn handle(self) -> CUmodule {
        self.module.get()
    }

    /// Unloads it from the current context.
    pub(crate) fn unload(self, table: &Table) -> Result<(), CUresult> {
        match self.library {
            Some(library) => call!(table, cuLibraryUnload(library.get())),
            None => call!(table, cuModuleUnload(self.module.get())),
        }
    }
}

/// What came of a load.
pub(crate) struct Loaded {
    pub(crate) outcome: Result<Module, CUresult>,
    pub(crate) log: JitLog,
}

impl Upload {
    /// Adds a piece.
    pub(crate) fn extend(&mut self, data: &[u8]) {
        if self.refused.is_some() {
            return;
        }
        if self.received.len() + data.len() > MAX_IMAGE {
            self.refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        } else {
            self.received.extend(data);
        }
    }

    /// Drops what has come. The next who takes an image gets the error.
    pub(crate) fn refuse(&mut self, error: CUresult) {
        *self = Upload { received: Part::default(), refused: Some(error) };
    }

    /// Cuts what has come into parts of the sizes given, and starts anew.
    pub(crate) fn take(&mut self, sizes: &[u64]) -> Result<Vec<Part>, CUresult> {
        let whole = self.take_all()?;
        if matches!(sizes, [size] if *size == whole.len() as u64) {
            return Ok(vec![whole]);
        }
        let mut rest: &[u8] = whole.bytes();
        let mut parts = Vec::new();
        for size in sizes {
            let size = usize::try_from(*size).ok().filter(|size| *size <= rest.len());
            let (part, left) = rest.split_at(size.ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?);
            parts.push(Part::new(part));
            rest = left;
        }
        if rest.is_empty() && !parts.is_empty() {
            Ok(parts)
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        }
    }

    /// All that has come, as one part, and starts anew.
    pub(crate) fn take_all(&mut self) -> Result<Part, CUresult> {
        let Upload { received, refused } = std::mem::take(self);
        refused.map_or(Ok(received), Err)
    }

    /// Why what has come is refused, if it is; starts anew then.
    pub(crate) fn check(&mut self) -> Result<(), CUresult> {
        self.refused.take().map_or(Ok(()), Err)
    }
}

/// Loads an image into the current context.
pub(crate) fn load<P: std::borrow::Borrow<Part>>(
    table: &Table,
    parts: &[P],
    options: &JitOptions,
) -> Loaded {
    let pointer = |part: &P| part.borrow().pointer();
    let mut options = match Options::with_logs(options) {
        Ok(options) => options,
        Err(error) => return Loaded { outcome: Err(error), log: JitLog::default() },
    };
    let outcome = if parts.len() > 1 {
        let others: Vec<*const c_void> =
            parts.iter().skip(1).map(pointer).chain([core::ptr::null()]).collect();
        let wrapper = Wrapper {
            magic: 0x4662_43B1,
            version: 2,
            data: pointer(&parts[0]),
            others: others.as_ptr(),
        };
        // Containers that the device linker has yet to join: only libraries take them.
        link(table, (&raw const wrapper).cast(), &mut options)
    } else {
        let mut module = core::ptr::null_mut();
        let (image, count) = (pointer(&parts[0]), options.count());
        call!(
            table,
            cuModuleLoadDataEx(&raw mut module, image, count, options.keys(), options.values())
        )
        .map(|()| Module { module: Handle::new(module), library: None })
    };
    Loaded { outcome, log: options.log() }
}

fn link(table: &Table, image: *const c_void, options: &mut Options) -> Result<Module, CUresult> {
    let (no_options, no_values) = (core::ptr::null_mut(), core::ptr::null_mut());
    let mut library: CUlibrary = core::ptr::null_mut();
    let (keys, values, count) = (options.keys(), options.values(), options.count());
    call!(
        table,
        cuLibraryLoadData(&raw mut library, image, keys, values, count, no_options, no_values, 0)
    )?;
    let mut module = core::ptr::null_mut();
    call!(table, cuLibraryGetModule(&raw mut module, library))?;
    Ok(Module { module: Handle::new(module), library: Some(Handle::new(library)) })
}

/// Finds a kernel.
pub(crate) fn function(
    table: &Table,
    module: CUmodule,
    name: &str,
) -> Result<CUfunction, CUresult> {
    let name = CString::new(name).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let mut function = core::ptr::null_mut();
    call!(table, cuModuleGetFunction(&raw mut function, module, name.as_ptr()))?;
    Ok(function)
}

/// Describes a kernel.
pub(crate) fn describe(table: &Table, function: CUfunction) -> Result<KernelInfo, CUresult> {
    let mut info = KernelInfo::default();
    for attribute in 0..ATTRIBUTES {
        let mut value = 0;
        let asked = outboard_abi::CUfunction_attribute_enum(attribute);
        if call!(table, cuFuncGetAttribute(&raw mut value, asked, function)).is_err() {
            break;
        }
        info.attributes.push(value);
    }
    for index in 0..MAX_PARAMS {
        let (mut offset, mut size) = (0usize, 0usize);
        match call!(table, cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size)) {
            Ok(()) => info.params.push((offset as u32, size as u32)),
            // Past the last parameter.
            Err(CUresult::CUDA_ERROR_INVALID_VALUE) => break,
            // The driver does not tell; the image may.
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) if table.cuFuncGetParamInfo.is_none() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(info)
}

/// Names of a module's kernels.
pub(crate) fn names(table: &Table, module: CUmodule) -> Result<Vec<String>, CUresult> {
    kernels(table, module, u32::MAX)?.into_iter().map(|function| name(table, function)).collect()
}

/// All the kernels of a module with their descriptions, if they are few.
pub(crate) fn described(
    table: &Table,
    module: CUmodule,
) -> Result<Vec<(String, KernelInfo)>, CUresult> {
    let kernels = kernels(table, module, MOST_DESCRIBED)?;
    let described = kernels.into_iter().map(|found| {
        let name = name(table, found)?;
        // By its name: what a driver enumerates may not be loaded yet, and has no true attributes
        // then.
        let info = describe(table, function(table, module, &name)?)?;
        if info.attributes.is_empty() {
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        } else {
            Ok((name, info))
        }
    });
    described.collect()
}

/// A module's kernels, if there are at most so many.
fn kernels(table: &Table, module: CUmodule, most: u32) -> Result<Vec<CUfunction>, CUresult> {
    let mut count = 0;
    call!(table, cuModuleGetFunctionCount(&raw mut count, module))?;
    if count > most {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut functions: Vec<CUfunction> = vec![core::ptr::null_mut(); count as usize];
    call!(table, cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module))?;
    Ok(functions)
}

fn name(table: &Table, function: CUfunction) -> Result<String, CUresult> {
    let mut name = core::ptr::null();
    call!(table, cuFuncGetName(&raw mut name, function))?;
    // SAFETY: the driver's string, which lives as long as the function.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Address and bytes of a module's variable, and whether it is managed.
pub(crate) fn global(
    table: &Table,
    module: CUmodule,
    name: &str,
) -> Result<(DevicePtr, u64, bool), CUresult> {
    let name = CString::new(name).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (mut address, mut bytes) = (0, 0usize);
    call!(table, cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, name.as_ptr()))?;
    // Four bytes are looked at by some drivers; a driver that does not know the attribute has no
    // managed variables.
    let mut managed = 0u32;
    let attribute = outboard_abi::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_IS_MANAGED;
    let known =
        call!(table, cuPointerGetAttribute((&raw mut managed).cast(), attribute, address)).is_ok();
    Ok((DevicePtr(address), bytes as u64, known && managed & 0xff != 0))
}
