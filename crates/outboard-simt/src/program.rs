//! Loaded programs and their kernels.

use crate::exec::context::CodePtr;
use crate::exec::pool::Core;
use cranelift_jit::JITModule;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

/// Why a program could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// An instruction the engine does not have.
    #[error(
        "kernel or function {function}, PTX line {line}: {what} is not supported by the software device"
    )]
    Unsupported {
        /// Kernel or device function the instruction is in.
        function: String,
        /// Line in the PTX text.
        line: u32,
        /// The instruction.
        what: String,
    },
    /// A function whose code would take more time and memory than one may.
    #[error(
        "kernel or function {function}, PTX line {line}: with {registers} registers over {blocks} blocks it is too large for the software device; \
         have the compiler unroll or inline less, or split the kernel"
    )]
    TooLarge {
        /// Kernel or device function.
        function: String,
        /// Line in the PTX text.
        line: u32,
        /// Its registers.
        registers: usize,
        /// Blocks between branches.
        blocks: usize,
    },
    /// Compiling took longer than it may ([`crate::EngineConfig::compile_time`]).
    #[error(
        "compiling the program took more than {} s, for {compiled} of its {functions} kernels and functions; \
         load it in parts, or set OUTBOARD_CPU_COMPILE_SECONDS to more",
        limit.as_secs_f32()
    )]
    TooLong {
        /// The longest that it may take.
        limit: Duration,
        /// Functions that were compiled.
        compiled: usize,
        /// Functions that the program has.
        functions: usize,
    },
    /// A symbol that no module defines.
    #[error("{0} is declared but not defined")]
    Undefined(String),
    /// A symbol that two modules define.
    #[error("{0} is defined more than once")]
    Duplicate(String),
    /// No memory for the variables of the program.
    #[error("no memory for the variables of the program: {0}")]
    OutOfMemory(#[from] crate::memory::OutOfMemory),
    /// The code generator refused the program; a defect of the engine.
    #[error("the code generator failed on {function}: {message}")]
    Codegen {
        /// Kernel or device function.
        function: String,
        /// What it said.
        message: String,
    },
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Bytes from the start of the parameter buffer.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// What can be asked about a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInfo {
    /// Static shared memory in bytes.
    pub shared_bytes: u32,
    /// Local memory per thread in bytes.
    pub local_bytes: u32,
    /// Constant memory of the program in bytes.
    pub const_bytes: u32,
    /// Registers per thread: the 32-bit registers that the values live at the busiest point would
    /// fill, between 16 and 255.
    pub registers: u32,
    /// Most threads in a block, from `.maxntid` or `.reqntid`, else 1024.
    pub max_threads: u32,
    /// `.reqntid`: the only block shape allowed.
    pub required_block: Option<[u32; 3]>,
    /// `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// Target architecture as a number, for example 90.
    pub target_sm: u32,
    /// Parameters in order.
    pub params: Vec<ParamInfo>,
    /// Bytes of the parameter buffer.
    pub params_size: u32,
}

/// A compiled program. Its variables live in device memory until it is dropped.
pub struct Program {
    pub(crate) kernels: BTreeMap<String, Arc<Kernel>>,
    pub(crate) globals: BTreeMap<String, (u64, u64)>,
    /// Those of them that are managed.
    pub(crate) managed: BTreeSet<String>,
    pub(crate) _code: Arc<Code>,
}

impl Program {
    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels.get(name).cloned()
    }

    /// All kernels, by name.
    pub fn kernels(&self) -> impl Iterator<Item = &Arc<Kernel>> {
        self.kernels.values()
    }

    /// Whether the variable of that name is managed: the host may use it at its address.
    pub fn is_managed(&self, name: &str) -> bool {
        self.managed.contains(name)
    }

    /// Address and size of the `.global` or `.const` variable of that name.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.globals.get(name).copied()
    }
}

/// A kernel of a loaded program. It keeps the program's code and variables alive.
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) info: KernelInfo,
    pub(crate) code: KernelCode,
    pub(crate) program: Arc<Code>,
}

impl Kernel {
    /// The name in the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sizes and limits.
    pub fn info(&self) -> &KernelInfo {
        &self.info
    }
}

/// In which launches of a kernel lanes of warps step, so that each thread needs a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stepping {
    pub(crate) always: bool,
    /// In those that have shared memory.
    pub(crate) with_shared: bool,
    /// In those in which warps span rows of the block.
    pub(crate) across_rows: bool,
    pub(crate) with_shared_across_rows: bool,
}

impl Stepping {
    pub(crate) fn needed(self, shared: bool, across_rows: bool) -> bool {
        self.always
            || shared && self.with_shared
            || across_rows && (self.across_rows || shared && self.with_shared_across_rows)
    }
}

/// How to run a kernel.
pub(crate) struct KernelCode {
    pub(crate) entry: CodePtr,
    /// Threads wait for each other, so each needs a stack.
    pub(crate) coroutines: bool,
    /// Blocks may wait for each other.
    pub(crate) spins: bool,
    pub(crate) stepping: Stepping,
    /// Calls may nest without a bound that is known.
    pub(crate) recursive: bool,
    /// Bytes of local memory that the longest chain of calls needs; without the part of recursion.
    pub(crate) local_bytes: u64,
    /// Bytes of machine stack, likewise.
    pub(crate) frame_bytes: u64,
    /// Largest machine frame.
    pub(crate) largest_frame: u64,
    /// Bytes of machine stack for runtime functions.
    pub(crate) stack_base: u64,
}

impl KernelCode {
    /// Bytes of machine stack per thread, where recursion may use `deep` bytes of local memory.
    pub(crate) fn stack_bytes(&self, deep: u64) -> u64 {
        // Machine frames of small functions are some times larger than what they keep in local
        // memory.
        let recursion = if self.recursive { deep * 4 } else { 0 };
        (self.stack_base + self.frame_bytes + self.largest_frame + recursion).next_multiple_of(4096)
    }
}

/// Machine code and variables of a program, kept by the program and its kernels.
pub(crate) struct Code {
    /// Names of the functions with bodies.
    pub(crate) functions: Vec<String>,
    /// Addresses of the variables.
    pub(crate) variables: Vec<u64>,
    pub(crate) core: Arc<Core>,
    pub(crate) _machine: Machine,
    /// Code pointers for indirect calls; compiled code knows the address.
    pub(crate) _table: Box<[u64]>,
}

impl Drop for Code {
    fn drop(&mut self) {
        for &addr in &self.variables {
            self.core.memory.free(addr);
        }
    }
}

/// Finished machine code.
pub(crate) struct Machine(pub(crate) ManuallyDrop<JITModule>);

// SAFETY: the module is not touched between the end of compilation and its destruction; the memory
// it owns is read-only code.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: taken once, here. Launches keep the kernel, and with it this code, alive while
        // they run, so nothing executes it.
        unsafe { ManuallyDrop::take(&mut self.0).free_memory() };
    }
}
