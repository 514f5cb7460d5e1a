//! What can go wrong while a grid runs.

use std::fmt;

/// A state space of PTX, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// An address that may point into any space.
    Generic,
    /// Device memory.
    Global,
    /// Memory of a block.
    Shared,
    /// Memory of one thread.
    Local,
    /// Constant memory.
    Const,
    /// Kernel or function parameters.
    Param,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Generic => "generic",
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Const => "constant",
            Space::Param => "parameter",
        })
    }
}

/// The reason a launch was ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// An access to an address where no memory is.
    #[error("illegal {space} address {addr:#x} in an access of {size} bytes")]
    IllegalAddress {
        /// The address, or for shared and local memory the offset in its window.
        addr: u64,
        /// Bytes accessed.
        size: u32,
        /// The space the instruction named.
        space: Space,
    },
    /// An access to memory at an address which is no multiple of the access size.
    #[error("misaligned {space} address {addr:#x} in an access of {size} bytes")]
    MisalignedAddress {
        /// The address, or for shared and local memory the offset in its window.
        addr: u64,
        /// Bytes accessed.
        size: u32,
        /// The space the instruction named.
        space: Space,
    },
    /// A failed `assert` in a kernel; the text has gone to the standard error sink.
    #[error("device-side assert failed: {0}")]
    Assert(String),
    /// A `trap` instruction, or a path the compiler proved unreachable.
    #[error("trap instruction")]
    Trap,
    /// An indirect call or branch to something that is no function or target.
    #[error("call to {0:#x}, which is no function of this program")]
    InvalidCall(u64),
    /// Recursion or local arrays beyond the stack of a thread.
    #[error("stack overflow: raise the stack limit or make the recursion shallower")]
    StackOverflow,
    /// Every live thread of a block waits, and none can go on.
    #[error(
        "deadlock: all {waiting} live threads of the block wait at barriers or warp operations that cannot complete"
    )]
    Deadlock {
        /// Threads that wait.
        waiting: u32,
    },
    /// Something this engine does not do, met when the kernel got there.
    #[error("{0} is not supported by the software device")]
    Unsupported(String),
    /// The launch configuration is outside what the kernel or the engine allows; nothing ran.
    #[error("invalid launch: {0}")]
    InvalidLaunch(String),
    /// Memory for the launch itself (stacks, local memory) could not be had; nothing ran.
    #[error("out of host memory for the launch: {0}")]
    OutOfResources(String),
}

/// A fault of a kernel: what, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// Name of the kernel that was launched.
    pub kernel: String,
    /// Function the faulting instruction is in (the kernel itself, or a function it called); empty
    /// when unknown.
    pub function: String,
    /// Line in the PTX text, 0 when unknown.
    pub line: u32,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, kernel, function, line, block, thread } = self;
        write!(f, "{kind}, in kernel {kernel}")?;
        if !function.is_empty() && function != kernel {
            write!(f, ", function {function}")?;
        }
        if *line != 0 {
            write!(f, ", PTX line {line}")?;
        }
        let ([bx, by, bz], [tx, ty, tz]) = (block, thread);
        write!(f, ", block [{bx},{by},{bz}], thread [{tx},{ty},{tz}]")
    }
}

impl std::error::Error for Fault {}
