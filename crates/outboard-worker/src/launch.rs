//! Launches, and what is asked about them.

use core::ffi::c_void;

use outboard_abi::CUlaunchAttributeID_enum as Attribute;
use outboard_abi::{
    CUDA_KERNEL_NODE_PARAMS, CUfunction, CUlaunchAttribute, CUlaunchConfig, CUresult, CUstream,
    CUtensorMap,
};
use outboard_driver::{Table, call};
use outboard_wire::launch::{PLAIN_ATTRIBUTES, event_of, names_event};
use outboard_wire::messages::TensorMapTiled;

use super::streams::Streams;

/// `CU_LAUNCH_PARAM_BUFFER_POINTER` and `_SIZE`: keys in a list of pointers.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// Blocks, threads, and bytes of dynamic shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) grid: (u32, u32, u32),
    pub(super) block: (u32, u32, u32),
    pub(super) shared: u32,
}

/// What a launch carries besides its shape and parameters.
pub(super) struct Extras<'a> {
    /// As they came from the client.
    pub(super) attributes: &'a [(u32, [u8; 64])],
    pub(super) cooperative: bool,
    /// What the attributes may name.
    pub(super) streams: &'a Streams,
}

/// The driver's structure for a launch with attributes.
pub(super) struct Config {
    /// What the structure points to.
    _attributes: Vec<CUlaunchAttribute>,
    config: CUlaunchConfig,
}

impl Config {
    pub(super) fn new(
        shape: &Shape,
        stream: CUstream,
        extras: &Extras<'_>,
    ) -> Result<Config, CUresult> {
        let mut list = Vec::with_capacity(extras.attributes.len() + 1);
        for (id, value) in extras.attributes {
            list.push(attribute(*id, translated(*id, *value, extras.streams)?));
        }
        if extras.cooperative {
            let mut value = [0; 64];
            value[0] = 1;
            list.push(attribute(Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0, value));
        }
        let config = CUlaunchConfig {
            gridDimX: shape.grid.0,
            gridDimY: shape.grid.1,
            gridDimZ: shape.grid.2,
            blockDimX: shape.block.0,
            blockDimY: shape.block.1,
            blockDimZ: shape.block.2,
            sharedMemBytes: shape.shared,
            hStream: stream,
            attrs: list.as_mut_ptr(),
            numAttrs: list.len() as u32,
        };
        Ok(Config { _attributes: list, config })
    }

    /// Valid as long as this value.
    pub(super) fn pointer(&self) -> *const CUlaunchConfig {
        &raw const self.config
    }
}

/// Whether an attribute holds neither handles nor host addresses.
pub(super) fn is_plain(id: u32) -> bool {
    PLAIN_ATTRIBUTES.contains(&id)
}

/// Calls with the parameters of a kernel as the driver takes them: a kernel without any takes no
/// buffer.
pub(super) fn with_parameters<T>(params: &[u8], run: impl FnOnce(*mut *mut c_void) -> T) -> T {
    let mut bytes = params.len();
    let mut list = [
        BUFFER_POINTER as *mut c_void,
        params.as_ptr().cast_mut().cast(),
        BUFFER_SIZE as *mut c_void,
        (&raw mut bytes).cast(),
        core::ptr::null_mut(),
    ];
    run(if params.is_empty() { core::ptr::null_mut() } else { list.as_mut_ptr() })
}

/// Launches a kernel without attributes.
pub(super) fn launch_plain(
    table: &Table,
    function: CUfunction,
    shape: &Shape,
    stream: CUstream,
    params: &[u8],
) -> Result<(), CUresult> {
    let ((gx, gy, gz), (bx, by, bz), shared) = (shape.grid, shape.block, shape.shared);
    let none = core::ptr::null_mut();
    with_parameters(params, |extra| {
        call!(table, cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, none, extra))
    })
}

/// Launches a kernel with attributes.
pub(super) fn launch(
    table: &Table,
    function: CUfunction,
    shape: &Shape,
    stream: CUstream,
    params: &[u8],
    extras: &Extras<'_>,
) -> Result<(), CUresult> {
    let config = Config::new(shape, stream, extras)?;
    let none = core::ptr::null_mut();
    with_parameters(params, |extra| {
        call!(table, cuLaunchKernelEx(config.pointer(), function, none, extra))
    })
}

/// The driver's structure for a kernel as a node of a graph.
pub(super) fn with_node<T>(
    function: CUfunction,
    shape: &Shape,
    params: &[u8],
    run: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS) -> T,
) -> T {
    let Shape { grid, block, shared } = *shape;
    with_parameters(params, |extra| {
        run(&CUDA_KERNEL_NODE_PARAMS {
            func: function,
            gridDimX: grid.0,
            gridDimY: grid.1,
            gridDimZ: grid.2,
            blockDimX: block.0,
            blockDimY: block.1,
            blockDimZ: block.2,
            sharedMemBytes: shared,
            kernelParams: core::ptr::null_mut(),
            extra,
            kern: core::ptr::null_mut(),
            ctx: core::ptr::null_mut(),
        })
    })
}

/// The value of a client's attribute with the driver's handles in place of names.
fn translated(id: u32, mut value: [u8; 64], streams: &Streams) -> Result<[u8; 64], CUresult> {
    if names_event(id) {
        let event = streams.event(event_of(&value))? as u64;
        value[..8].copy_from_slice(&event.to_ne_bytes());
    } else if !PLAIN_ATTRIBUTES.contains(&id) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(value)
}

/// A launch attribute as the driver takes it.
pub(super) fn attribute(id: u32, value: [u8; 64]) -> CUlaunchAttribute {
    CUlaunchAttribute {
        id: outboard_abi::CUlaunchAttributeID_enum(id),
        pad: [0; 4],
        value: outboard_abi::CUlaunchAttributeValue {
            pad: value.map(|byte| byte as core::ffi::c_char),
        },
    }
}

/// Encodes a tensor map. The driver only writes the address down; kernels that use the map are
/// checked by the device.
pub(super) fn tensor_map(table: &Table, m: &TensorMapTiled) -> Result<[u8; 128], CUresult> {
    let rank = m.dims.len();
    let fits = rank > 0
        && m.strides.len() + 1 == rank
        && m.box_dims.len() == rank
        && m.element_strides.len() == rank;
    if !fits {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    /// Tensor maps must lie at multiples of 64.
    #[repr(align(64))]
    struct Aligned(CUtensorMap);
    let mut map = Aligned(CUtensorMap { opaque: [0; 16] });
    call!(
        table,
        cuTensorMapEncodeTiled(
            &raw mut map.0,
            outboard_abi::CUtensorMapDataType_enum(m.data_type),
            rank as u32,
            m.address.0 as *mut c_void,
            m.dims.as_ptr(),
            m.strides.as_ptr(),
            m.box_dims.as_ptr(),
            m.element_strides.as_ptr(),
            outboard_abi::CUtensorMapInterleave_enum(m.interleave),
            outboard_abi::CUtensorMapSwizzle_enum(m.swizzle),
            outboard_abi::CUtensorMapL2promotion_enum(m.promotion),
            outboard_abi::CUtensorMapFloatOOBfill_enum(m.fill),
        )
    )?;
    let mut bytes = [0; 128];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(map.0.opaque) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}
