//! Attributes of streams: defaults for the launches in them.

use outboard_abi::{
    CUlaunchAttributeID_enum as L, CUresult, CUstream, CUstreamAttrID, CUstreamAttrValue,
};
use outboard_wire::launch::STREAM_ATTRIBUTES;

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::process::Process;
use crate::stream::find;

/// Whether streams have this attribute.
fn check(attribute: CUstreamAttrID) -> Result<()> {
    require(STREAM_ATTRIBUTES.contains(&attribute.0))
}

pub unsafe fn cuStreamSetAttribute<B: Backend>(
    process: &'static Process<B>,
    named: CUstream,
    attribute: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Result<()> {
    let (here, stream) = find(process, named)?;
    check(attribute)?;
    // SAFETY: null or the program's value.
    let value = unsafe { value.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: a union of plain values, all bytes of which `pad` covers.
    let bytes = unsafe { value.pad }.map(|byte| byte as u8);
    here.note(process.backend.stream_set_attribute(here.id, stream, attribute.0, bytes))?;
    if attribute == L::CU_LAUNCH_ATTRIBUTE_PRIORITY {
        // SAFETY: the member that belongs to this attribute.
        process.streams.set_priority(named, unsafe { value.priority });
    }
    Ok(())
}

pub unsafe fn cuStreamGetAttribute<B: Backend>(
    process: &'static Process<B>,
    named: CUstream,
    attribute: CUstreamAttrID,
    value: *mut CUstreamAttrValue,
) -> Result<()> {
    let (here, stream) = find(process, named)?;
    check(attribute)?;
    require(!value.is_null())?;
    let bytes = here.note(process.backend.stream_attribute(here.id, stream, attribute.0))?;
    // SAFETY: the program's out parameter.
    unsafe { put(value, CUstreamAttrValue { pad: bytes.map(|byte| byte as core::ffi::c_char) }) }
}

/// Gives one stream all attributes of another in the same context.
pub unsafe fn cuStreamCopyAttributes<B: Backend>(
    process: &'static Process<B>,
    to: CUstream,
    from: CUstream,
) -> Result<()> {
    let (here, dst) = find(process, to)?;
    let (there, src) = find(process, from)?;
    require(here.id == there.id)?;
    here.note(process.backend.stream_copy_attributes(here.id, dst, src))?;
    if let Some(priority) = process.streams.priority(from) {
        process.streams.set_priority(to, priority);
    }
    Ok(())
}
