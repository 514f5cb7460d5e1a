//! Questions about an address.

use core::ffi::{c_int, c_uint, c_void};

use outboard_abi::{
    CUdeviceptr, CUmemorytype, CUpointer_attribute, CUpointer_attribute_enum as A, CUresult,
};

use crate::backend::{Backend, DevicePtr, Result, UnifiedPtr};
use crate::border::{put, require, slice};
use crate::memory::{self, Allocation, Kind};
use crate::process::{Front, Process};
use crate::{pool, vmm};

/// An attribute's value, in the type that cuda.h gives it.
enum Value {
    Word(u32),
    Long(u64),
    Bool(bool),
    Range(u64, u64),
}

impl Value {
    /// # Safety
    /// `out` is null or fits the attribute's type.
    unsafe fn store(&self, out: *mut c_void) -> Result<()> {
        // SAFETY: by the contract above.
        unsafe {
            match *self {
                Value::Word(word) => put(out.cast::<c_uint>(), word),
                Value::Long(long) => put(out.cast::<u64>(), long),
                // The runtime gives four bytes, not initialised, and looks at all of them.
                Value::Bool(flag) => put(out.cast::<c_int>(), c_int::from(flag)),
                Value::Range(base, bytes) => put(out.cast::<[u64; 2]>(), [base, bytes]),
            }
        }
    }
}

/// The value for an address inside an allocation; `None` for attributes that it does not have.
fn known<B: Backend>(
    process: &'static Process<B>,
    attribute: CUpointer_attribute,
    address: UnifiedPtr,
    base: UnifiedPtr,
    bytes: u64,
    a: &Allocation,
) -> Option<Value> {
    let host = a.kind.is_host();
    let mapped = matches!(a.kind, Kind::Mapped { .. });
    let reservation = || vmm::reservation(process, address.device()).filter(|_| mapped);
    Some(match attribute {
        A::CU_POINTER_ATTRIBUTE_CONTEXT => Value::Long(a.context),
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Word(
            if host {
                CUmemorytype::CU_MEMORYTYPE_HOST
            } else {
                CUmemorytype::CU_MEMORYTYPE_DEVICE
            }
            .0,
        ),
        A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Long(address.0),
        A::CU_POINTER_ATTRIBUTE_HOST_POINTER if host || a.kind.is_managed() => {
            Value::Long(address.0)
        }
        A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Value::Bool(a.synchronous),
        A::CU_POINTER_ATTRIBUTE_IS_MANAGED => Value::Bool(a.kind.is_managed()),
        A::CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Long(a.id),
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Word(a.device as u32),
        A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => Value::Bool(a.kind == Kind::Device),
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => {
            Value::Long(reservation().map_or(base.0, |(start, _)| start.0))
        }
        A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => {
            Value::Long(reservation().map_or(bytes, |(_, len)| len))
        }
        A::CU_POINTER_ATTRIBUTE_MAPPED => Value::Bool(true),
        A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES if mapped => {
            Value::Long(vmm::handle_types(process, address.device()).into())
        }
        A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => match a.kind {
            Kind::Pooled(pool) => Value::Long(pool::handle_types(process, pool).into()),
            _ => Value::Long(0),
        },
        A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | A::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Value::Bool(false),
        A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS if mapped => {
            Value::Word(access(process, address.device()))
        }
        A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Word(3),
        A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => match a.kind {
            Kind::Pooled(pool) => Value::Long(pool::handle_of(process, pool, a.device)),
            _ => Value::Long(0),
        },
        A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Value::Long(bytes),
        A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Value::Long(base.0),
        A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => match a.kind {
            Kind::Mapped { memory, .. } => Value::Long(memory),
            _ => Value::Long(a.id),
        },
        _ => return None,
    })
}

/// The access of the current context's device to mapped memory.
fn access(front: &'static Front, address: DevicePtr) -> u32 {
    let device = crate::context::top().map(|context| context.device);
    device.and_then(|device| vmm::access_of(front, address, device)).unwrap_or(0)
}

/// The value for memory that CUDA does not know: what `cuPointerGetAttributes` gives instead of an
/// error.
fn unknown(attribute: CUpointer_attribute) -> Value {
    match attribute {
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Word(-2i32 as u32),
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE | A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
            Value::Word(0)
        }
        A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | A::CU_POINTER_ATTRIBUTE_IS_MANAGED
        | A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | A::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE
        | A::CU_POINTER_ATTRIBUTE_MAPPED => Value::Bool(false),
        A::CU_POINTER_ATTRIBUTE_P2P_TOKENS => Value::Range(0, 0),
        _ => Value::Long(0),
    }
}

pub unsafe fn cuPointerGetAttribute<B: Backend>(
    process: &'static Process<B>,
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!data.is_null())?;
    let address = UnifiedPtr(address);
    let (base, bytes, allocation) =
        memory::find(process, address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let value = known(process, attribute, address, base, bytes, &allocation)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the program's out parameter, of the attribute's type.
    unsafe { value.store(data) }
}

pub unsafe fn cuPointerGetAttributes<B: Backend>(
    process: &'static Process<B>,
    count: c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> Result<()> {
    crate::state::ready(process)?;
    require(count > 0)?;
    let address = UnifiedPtr(address);
    let found = memory::find(process, address);
    // SAFETY: the program gives `count` of each.
    let (attributes, data) =
        unsafe { (slice(attributes, count as usize)?, slice(data, count as usize)?) };
    for (attribute, out) in attributes.iter().zip(data) {
        let value = found
            .and_then(|(base, bytes, allocation)| {
                known(process, *attribute, address, base, bytes, &allocation)
            })
            .unwrap_or_else(|| unknown(*attribute));
        // SAFETY: the program's out parameters, each of its attribute's type.
        unsafe { value.store(*out) }?;
    }
    Ok(())
}

pub unsafe fn cuPointerSetAttribute<B: Backend>(
    process: &'static Process<B>,
    value: *const c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!value.is_null() && attribute == A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)?;
    // SAFETY: the program's value, which cuda.h says is an `unsigned int`.
    let synchronous = unsafe { *value.cast::<c_uint>() } != 0;
    require(memory::set_synchronous(process, UnifiedPtr(address), synchronous))
}
