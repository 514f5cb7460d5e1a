//! The part of a device's multiprocessors that a session has: a green context replaces each of its
//! contexts, so that all its work, in any stream, runs there.

use outboard_abi::{CUcontext, CUdevResource, CUdevResourceType, CUgreenCtx_st, CUresult};
use outboard_driver::{Table, call};

use super::objects::Handle;

/// `CU_GREEN_CTX_DEFAULT_STREAM`.
const DEFAULT_STREAM: u32 = 1;

/// More groups than any device has multiprocessors.
pub(crate) const MOST_GROUPS: u32 = 4096;
/// A green context, and the context that it is for calls that take one.
#[derive(Clone, Copy)]
pub(crate) struct Green {
    pub(crate) context: Handle<outboard_abi::CUgreenCtx_st>,
    pub(crate) real: Handle<outboard_abi::CUctx_st>,
}

/// A resource for the driver to fill.
pub(crate) fn empty() -> CUdevResource {
    // SAFETY: plain numbers, for which zeros are a value.
    unsafe { core::mem::zeroed() }
}

/// Multiprocessors of one device.
#[derive(Clone, Copy)]
pub(super) struct Portion {
    pub(super) resource: CUdevResource,
    pub(super) count: u32,
    /// A green context with these, for a session that asks for them before it has a context.
    pub(super) stand_in: Option<Handle<CUgreenCtx_st>>,
}

fn count(resource: &CUdevResource) -> u32 {
    // SAFETY: the driver has filled it in as one of multiprocessors; any bytes are a number.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

/// The groups that a device can be cut into, of at least so many each.
fn split(table: &Table, whole: &CUdevResource, least: u32) -> Result<Vec<CUdevResource>, CUresult> {
    let (none, mut groups) = (core::ptr::null_mut(), 0);
    call!(table, cuDevSmResourceSplitByCount(none, &raw mut groups, whole, none, 0, least))?;
    groups = groups.clamp(1, MOST_GROUPS);
    let mut found: Vec<CUdevResource> = (0..groups).map(|_| empty()).collect();
    call!(
        table,
        cuDevSmResourceSplitByCount(found.as_mut_ptr(), &raw mut groups, whole, none, 0, least)
    )?;
    found.truncate(groups as usize);
    if found.is_empty() {
        Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)
    } else {
        Ok(found)
    }
}

/// Cuts off `percent` of a device: rather less than more, but never less than the device can.
/// `seat` spreads sessions over it.
pub(super) fn cut(table: &Table, device: i32, percent: u8, seat: u64) -> Result<Portion, CUresult> {
    let mut whole = empty();
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    call!(table, cuDeviceGetDevResource(device, &raw mut whole, kind))?;
    let allowed = (count(&whole) * u32::from(percent) / 100).max(1);
    let mut least = allowed;
    loop {
        // Devices round up to what they can do.
        let groups = split(table, &whole, least)?;
        if count(&groups[0]) <= allowed || least == 1 {
            let resource = groups[(seat % groups.len() as u64) as usize];
            return Ok(Portion { resource, count: count(&resource), stand_in: None });
        }
        least -= 1;
    }
}

impl Portion {
    /// A green context with these multiprocessors, in the device's primary context.
    pub(super) fn open(mut self, table: &Table, device: i32) -> Result<Green, CUresult> {
        let (mut desc, mut green) = (core::ptr::null_mut(), core::ptr::null_mut());
        call!(table, cuDevResourceGenerateDesc(&raw mut desc, &raw mut self.resource, 1))?;
        call!(table, cuGreenCtxCreate(&raw mut green, desc, device, DEFAULT_STREAM))?;
        let mut real: CUcontext = core::ptr::null_mut();
        if let Err(error) = call!(table, cuCtxFromGreenCtx(&raw mut real, green)) {
            let _ = call!(table, cuGreenCtxDestroy(green));
            return Err(error);
        }
        Ok(Green { context: Handle::new(green), real: Handle::new(real) })
    }
}
