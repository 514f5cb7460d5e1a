//! Functions: kernels in a context.

pub(crate) mod configured;

use std::ffi::CString;
use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{CUfunction_attribute, CUresult};
use outboard_wire::platform::KernelInfo;
use parking_lot::Mutex;

use crate::backend::{ContextId, ObjectId, Result};
use crate::handles::{Kind, Table};
use crate::parts::context::{Context, Here};
use crate::parts::function::configured::Configured;

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) ctx: ContextId,
    pub(crate) module: u64,
    pub(crate) name: CString,
    pub(crate) info: KernelInfo,
    pub(crate) param_bytes: usize,
    /// Current value of each attribute; programs may set some.
    pub(crate) attributes: Vec<AtomicI32>,
    pub(crate) answers: crate::parts::occupancy::Answers,
    /// For the launch interface of before CUDA 4.
    pub(crate) next: Mutex<Configured>,
}

/// The functions of a process.
pub(crate) struct Functions {
    pub(crate) table: Table<Function>,
}

impl Functions {
    pub(crate) const fn new() -> Functions {
        Functions { table: Table::new(Kind::Function) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

impl Function {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }

    /// Its name in the image.
    pub(crate) fn name(&self) -> &std::ffi::CStr {
        &self.name
    }

    /// The current value of an attribute.
    pub(crate) fn attribute(&self, attribute: CUfunction_attribute) -> Result<i32> {
        let value =
            self.attributes.get(attribute.0 as usize).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(value.load(Ordering::Relaxed))
    }

    /// Bytes of shared memory that a block needs whatever the launch says.
    pub(crate) fn static_shared(&self) -> i32 {
        self.info.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES.0)
    }

    pub(crate) fn live(&self) -> Result<Here> {
        self.context.live()
    }
}
