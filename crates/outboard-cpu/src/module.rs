//! Modules: from the image a program hands over to compiled kernels.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use outboard_abi::{CUfunction_attribute_enum, CUresult};
use outboard_front::backend::{ContextId, Image, JitLog, JitOptions, ObjectId, Result};
use outboard_image::{Format, Kind};
use outboard_ptx::{ErrorKind, ir};
use outboard_simt::{Kernel, LoadError, Program};
use outboard_wire::platform::KernelInfo;

use crate::context::Context;
use crate::device;
use crate::launch::{blocks_per_multiprocessor, dynamic_shared_of};

/// A loaded image.
pub(crate) struct Module {
    pub(crate) ctx: ContextId,
    pub(crate) program: Arc<Program>,
    /// Names of its kernels, in its order.
    pub(crate) kernels: Vec<String>,
}

/// What fixes the clusters of a function, by dimension.
const REQUIRED_CLUSTER: [CUfunction_attribute_enum; 3] = [
    CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
    CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
    CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
];

/// A kernel that the front has named.
pub(crate) struct Function {
    pub(crate) ctx: ContextId,
    pub(crate) module: ObjectId,
    pub(crate) kernel: Arc<Kernel>,
    /// Dynamic shared memory that a launch may ask for; bytes.
    most_shared: AtomicU32,
    /// Blocks of a cluster in each dimension, where `cuFuncSetAttribute` has said so; 0 is not
    /// said.
    cluster: [AtomicU32; 3],
}

/// A refusal: what the program gets, and why.
pub(crate) struct Refusal(pub(crate) CUresult, pub(crate) String);

pub(crate) type Outcome<T> = std::result::Result<T, Refusal>;

/// Finds the PTX in an image, checks and compiles it.
pub(crate) fn load(context: &Context, image: Image<'_>, log: &mut JitLog) -> Result<Module> {
    told(image.options, log, |_| compile(context, image))
}

/// Does what compiles or links, and fills the log. That needs more stack than some threads have.
pub(crate) fn told<T>(
    options: &JitOptions,
    log: &mut JitLog,
    work: impl FnOnce(&mut JitLog) -> Outcome<T>,
) -> Result<T> {
    let begun = Instant::now();
    let outcome = outboard_simt::with_room(|| work(log));
    log.milliseconds = begun.elapsed().as_secs_f32() * 1e3;
    // Code for this device takes no registers from others, so that any block that was asked for can
    // be launched.
    let asked = options.values.iter().find(|(option, _)| *option == JitOptions::THREADS_PER_BLOCK);
    log.threads = asked.map_or(0, |(_, threads)| *threads as u32);
    outcome.map_err(|Refusal(error, why)| {
        log.error = why;
        error
    })
}

fn compile(context: &Context, image: Image<'_>) -> Outcome<Module> {
    let texts = texts(image)?;
    let modules = texts.iter().map(|text| parse(text)).collect::<Outcome<Vec<_>>>()?;
    let modules: Vec<&ir::Module> = modules.iter().collect();
    let program = context.engine.load_with(&modules, &image.options.symbols).map_err(|error| {
        let result = match error {
            LoadError::OutOfMemory(_) => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            LoadError::Undefined(_)
            | LoadError::TooLarge { .. }
            | LoadError::TooLong { .. }
            | LoadError::Duplicate(_)
            | LoadError::Unsupported { .. }
            | LoadError::Codegen { .. } => CUresult::CUDA_ERROR_INVALID_PTX,
        };
        Refusal(result, error.to_string())
    })?;
    let functions = modules.iter().flat_map(|module| &module.functions);
    let kernels = functions.filter(|function| function.entry.is_some() && function.body.is_some());
    let kernels = kernels.map(|function| function.name.clone()).collect();
    Ok(Module { ctx: context.id, program, kernels })
}

/// The PTX texts that make up the program: one, or one for each object that was to be linked.
fn texts<'a>(image: Image<'a>) -> Outcome<Vec<Cow<'a, str>>> {
    let mut texts = Vec::new();
    for part in image.parts {
        // With several parts, one that holds machine code alone is the result of the link, which is
        // not needed.
        if outboard_image::format_of(part) == Ok(Format::Elf) {
            texts.extend(linked_texts(part)?.into_iter().map(Cow::Borrowed));
        } else {
            texts.extend(ptx_of(part)?);
        }
    }
    if texts.is_empty() { Err(no_ptx(image.parts)) } else { Ok(texts) }
}

/// What is said of an image that cannot be taken apart.
pub(crate) fn damaged(error: &outboard_image::Error) -> Refusal {
    Refusal(CUresult::CUDA_ERROR_INVALID_IMAGE, error.to_string())
}

/// The PTX texts of a cubin that this device's linker made; none in a cubin of machine code.
pub(crate) fn linked_texts(cubin: &[u8]) -> Outcome<Vec<&str>> {
    outboard_image::linked_texts(cubin)
        .map_err(|error| damaged(&error))?
        .into_iter()
        .map(text)
        .collect()
}

/// PTX is text.
fn text(bytes: &[u8]) -> Outcome<&str> {
    let refuse =
        |error| Refusal(CUresult::CUDA_ERROR_INVALID_PTX, format!("the PTX is not text: {error}"));
    std::str::from_utf8(bytes).map_err(refuse)
}

/// The best PTX text for the device in one part of an image.
pub(crate) fn ptx_of(part: &[u8]) -> Outcome<Option<Cow<'_, str>>> {
    let found = match outboard_image::format_of(part).map_err(|error| damaged(&error))? {
        Format::Elf => return Ok(None),
        Format::Ptx => Cow::Borrowed(part),
        Format::Fatbin => {
            match outboard_image::best_ptx(part, device::SM).map_err(|error| damaged(&error))? {
                Some(entry) => entry.contents().map_err(|error| damaged(&error))?,
                None => return Ok(None),
            }
        }
    };
    match found {
        Cow::Borrowed(bytes) => Ok(Some(Cow::Borrowed(text(bytes)?))),
        Cow::Owned(bytes) => Ok(Some(Cow::Owned(text(&bytes)?.to_owned()))),
    }
}

/// Says what an image without usable PTX does hold, and how to build it with some.
pub(crate) fn no_ptx(parts: &[&[u8]]) -> Refusal {
    let entries = parts.iter().filter(|part| outboard_image::format_of(part) == Ok(Format::Fatbin));
    let mut found: Vec<_> = entries
        .flat_map(|part| outboard_image::entries(part).flatten())
        .filter_map(|entry| match entry.kind {
            Kind::Ptx => Some(format!("PTX for sm_{}", entry.sm)),
            Kind::Elf => Some(format!("machine code for sm_{}", entry.sm)),
            _ => None,
        })
        .collect();
    found.sort();
    found.dedup();
    if found.is_empty() {
        found.push("machine code for a GPU".into());
    }
    let why = format!(
        "the image holds {} and no PTX that an sm_{} device can use: build it with PTX, for example with -arch=compute_75",
        found.join(", "),
        device::SM
    );
    Refusal(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, why)
}

/// Parses and checks PTX.
pub(crate) fn parse(text: &str) -> Outcome<ir::Module> {
    let module = outboard_ptx::parse(text).map_err(|error| {
        let result = match error.kind {
            ErrorKind::UnsupportedVersion(..) => CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            _ if !text.contains(".version") => CUresult::CUDA_ERROR_INVALID_IMAGE,
            _ => CUresult::CUDA_ERROR_INVALID_PTX,
        };
        Refusal(result, error.to_string())
    })?;
    if module.target_sm > device::SM {
        let why =
            format!("PTX for sm_{}, but the device is an sm_{}", module.target_sm, device::SM);
        return Err(Refusal(CUresult::CUDA_ERROR_INVALID_PTX, why));
    }
    Ok(module)
}

impl Function {
    pub(crate) fn new(ctx: ContextId, module: ObjectId, kernel: Arc<Kernel>) -> Function {
        let most_shared = device::SHARED.saturating_sub(kernel.info().shared_bytes);
        Function {
            ctx,
            module,
            kernel,
            most_shared: AtomicU32::new(most_shared),
            cluster: Default::default(),
        }
    }

    /// `cuFuncSetAttribute`, with what the front has checked. The other attributes advise what has
    /// no meaning here.
    pub(crate) fn set_attribute(&self, attribute: u32, value: i32) -> Result<()> {
        let value = value.max(0) as u32;
        if attribute == CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.0
        {
            self.most_shared.store(value, Ordering::Relaxed);
        }
        if let Some(dimension) =
            REQUIRED_CLUSTER.iter().position(|required| required.0 == attribute)
        {
            if self.kernel.info().required_cluster.is_some() {
                return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
            }
            self.cluster[dimension].store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Blocks of a cluster in each dimension that every launch must have.
    pub(crate) fn cluster(&self) -> Option<[u32; 3]> {
        let set = self.cluster.each_ref().map(|blocks| blocks.load(Ordering::Relaxed));
        self.kernel.info().required_cluster.or((set != [0; 3]).then_some(set))
    }

    /// Blocks of `threads` threads with `shared` bytes of dynamic shared memory that fit on a
    /// multiprocessor.
    pub(crate) fn occupancy(&self, threads: u32, shared: u64) -> i32 {
        let info = self.kernel.info();
        if threads > info.max_threads
            || shared > u64::from(self.most_shared.load(Ordering::Relaxed))
        {
            return 0;
        }
        blocks_per_multiprocessor(info.registers, u64::from(info.shared_bytes) + shared, threads)
    }

    /// Bytes of dynamic shared memory that each of `blocks` blocks of `threads` threads can have on
    /// a multiprocessor.
    pub(crate) fn dynamic_shared(&self, blocks: u32, threads: u32) -> Result<u64> {
        if self.occupancy(threads, 0) < blocks as i32 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let info = self.kernel.info();
        let most = u64::from(self.most_shared.load(Ordering::Relaxed));
        Ok(dynamic_shared_of(blocks, u64::from(info.shared_bytes)).min(most))
    }

    /// What `cuFuncGetAttribute` and `cuFuncGetParamInfo` tell, by attribute number.
    pub(crate) fn info(&self) -> KernelInfo {
        let info = self.kernel.info();
        let cluster = info.required_cluster;
        let [width, height, depth] = cluster.unwrap_or_default();
        let attributes = [
            info.max_threads,
            info.shared_bytes,
            info.const_bytes,
            info.local_bytes,
            info.registers,
            // "PTX version" means the virtual architecture; programs choose their tuning by it.
            info.target_sm,
            device::SM,
            0,
            self.most_shared.load(Ordering::Relaxed),
            // No preference for the share of shared memory in the first-level cache.
            u32::MAX,
            u32::from(cluster.is_some()),
            width,
            height,
            depth,
            0,
            0,
        ];
        KernelInfo {
            attributes: attributes.into_iter().map(|value| value as i32).collect(),
            params: info.params.iter().map(|param| (param.offset, param.size)).collect(),
        }
    }
}
