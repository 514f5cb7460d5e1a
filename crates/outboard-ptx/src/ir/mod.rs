//! The verified program: what the parser produces and a back end consumes.
//!
//! Everything here is resolved and checked: every register, symbol and label exists, operand widths
//! agree with the instruction, and what the software device does not support has been refused. A
//! back end may therefore match on [`Op`] by rule (operation × type × modifiers) without validating
//! again.
//!
//! Conventions
//! - A register has one declared type; only its width and whether it is a predicate matter. An
//!   instruction's own `ty` says how to read the bits. Widths agree except where PTX lets them
//!   differ: the destination of [`Op::Ld`], [`Op::Cvt`] and the source of [`Op::St`], [`Op::Cvt`]
//!   may be *wider* than the instruction's type. A loaded or converted value is then sign-extended
//!   for signed types and zero-extended for all others; a stored or converted source is truncated.
//! - An immediate is the bit pattern of the operand in the width that the instruction reads, in the
//!   low bits.
//! - The special register operands, `WARP_SZ` and symbols used as operands have been lowered to
//!   [`Op::MovSpecial`], [`Operand::Imm`] and [`Op::MovAddr`] with a fresh register.
//! - A guarded instruction does nothing in a thread whose guard does not hold.

mod modifiers;
mod op;
mod parts;
mod special;
mod texture;

pub use modifiers::*;
pub use op::Op;
pub use parts::{CallArg, Callee, MbarrierOp};
pub use special::{Dim, SpecialReg};
pub use texture::{Boundary, Fetch, Geometry, Query};

use crate::types::{Space, Type};

/// Index into [`Body::regs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// Index into [`Module::globals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GlobalId(pub u32);

/// Index into [`Module::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FuncId(pub u32);

/// Index into [`Body::vars`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);

/// Index into [`Body::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// One PTX module.
#[derive(Clone, Debug)]
pub struct Module {
    /// `.version`, for example (9, 0).
    pub version: (u32, u32),
    /// `.target sm_NN` as a number, for example 90. The suffixes `a` and `f` are dropped.
    pub target_sm: u32,
    /// All variables in `.global`, `.const` and `.shared`, those declared inside functions
    /// included.
    pub globals: Vec<Global>,
    /// All functions; one that is only declared has no [`Function::body`].
    pub functions: Vec<Function>,
}

/// Which other modules see a variable or function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// Neither `.visible` nor `.extern` nor `.weak`.
    Internal,
    /// Other modules may refer to it.
    Visible,
    /// As `Visible`, unless another module has a definition that is not weak.
    Weak,
    /// A variable of which several modules have a copy; linked as one, the largest.
    Common,
    /// Declared here, defined in another module.
    Extern,
}

/// A variable with static storage.
#[derive(Clone, Debug)]
pub struct Global {
    /// The symbol; unique within its function or module only.
    pub name: String,
    /// `Global`, `Const` or `Shared`.
    pub space: Space,
    /// `Internal` for variables of functions, unless they are `.extern`.
    pub linkage: Linkage,
    /// `.attribute(.managed)`: host code may use the variable too.
    pub managed: bool,
    /// Bytes, a power of two.
    pub align: u32,
    /// Bytes. 0 for an array without size, see [`Global::is_dynamic_shared`].
    pub size: u64,
    /// Initial contents, no longer than `size`; what lies behind is zero. Always empty for
    /// `.shared`.
    pub init: Vec<u8>,
    /// Addresses to be written into the initial contents once addresses are known.
    pub relocs: Vec<Reloc>,
    /// For `.shared` variables: byte offset in the shared memory of a block. The same in each
    /// kernel that can reach the variable; variables that no kernel uses together may overlap.
    /// Meaningless for dynamic shared memory, which begins at [`Entry::static_shared`].
    pub shared_offset: u32,
}

impl Global {
    /// `.extern .shared` array: the dynamic shared memory of the launch.
    pub fn is_dynamic_shared(&self) -> bool {
        self.space == Space::Shared && self.linkage == Linkage::Extern
    }
}

/// An address in an initialiser: `bytes` bytes at `offset` receive the low bytes of
/// `(target + addend) >> shift`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloc {
    /// Bytes from the start of the variable.
    pub offset: u64,
    /// 8 for whole 64-bit addresses, 4 in 32-bit modules, 1 for one byte cut out by a mask
    /// operator.
    pub bytes: u32,
    /// Bits: 0 for whole addresses, 8 × n for byte n of an address.
    pub shift: u32,
    /// What the address is that of.
    pub target: Symbol,
    /// Bytes from there.
    pub addend: i64,
    /// `generic(sym)`: the generic address of the variable rather than the one in its own space.
    pub generic: bool,
}

/// What an initialiser may hold the address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A variable.
    Global(GlobalId),
    /// A function, for indirect calls.
    Func(FuncId),
}

/// A kernel or a device function.
#[derive(Clone, Debug)]
pub struct Function {
    /// The symbol as the PTX text has it.
    pub name: String,
    /// Which other modules may call it.
    pub linkage: Linkage,
    /// Parameter and return layout; for a kernel the offsets are those of its parameter buffer.
    pub sig: Signature,
    /// `Some` for a kernel (`.entry`).
    pub entry: Option<Entry>,
    /// `.noreturn`: calls never return.
    pub noreturn: bool,
    /// `None` for a declaration. Known system calls (`vprintf`, `malloc`, `free`, `__assertfail`)
    /// are declared so.
    pub body: Option<Body>,
    /// Line of the definition (or of the declaration) in the PTX text, from 1.
    pub line: u32,
}

/// What only kernels have.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// `.maxntid`, missing dimensions 1.
    pub max_ntid: Option<[u32; 3]>,
    /// `.reqntid`, missing dimensions 1.
    pub req_ntid: Option<[u32; 3]>,
    /// `.minnctapersm`, blocks.
    pub min_ncta_per_sm: Option<u32>,
    /// `.maxnreg`, registers of a thread.
    pub max_nreg: Option<u32>,
    /// `.reqnctapercluster` or, lacking it, `.explicitcluster` with `.maxclusterrank`.
    pub req_cluster: Option<[u32; 3]>,
    /// Bytes of static shared memory of all variables that this kernel and its callees can reach,
    /// rounded up so that dynamic shared memory may begin here.
    pub static_shared: u32,
}

/// Where arguments lie in the argument area and results in the result area of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Parameters, in order of declaration.
    pub params: Vec<Param>,
    /// Results, in order of declaration; at most one from CUDA C++.
    pub rets: Vec<Param>,
    /// Bytes of the argument area (for a kernel: of the parameter buffer), the end of the last
    /// parameter.
    pub params_size: u32,
    /// Bytes of the result area.
    pub rets_size: u32,
}

/// A parameter or a result, in its area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The symbol by which the body refers to it.
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// Bytes, the whole array for array parameters.
    pub size: u32,
    /// Bytes, a power of two.
    pub align: u32,
    /// Bytes from the start of the area.
    pub offset: u32,
}

/// Code and frame of a function.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Declared type of each register; a register holds an undefined value until it is written.
    pub regs: Vec<Type>,
    /// `.local` variables and the `.param` variables that calls use.
    pub vars: Vec<Var>,
    /// Bytes of the frame that holds all `vars` at their offsets.
    pub frame_size: u32,
    /// Greatest alignment among `vars`, at least 1.
    pub frame_align: u32,
    /// Blocks in program order, the first one entered first. Only the last instruction of a block
    /// may be a control transfer (`Bra`, `BrxIdx`, `Ret`, `Exit`, `Trap`); without one, or when its
    /// guard does not hold, control passes to the next block. Behind the last block stands an
    /// implicit `Ret`.
    pub blocks: Vec<Block>,
}

/// A variable in the frame of one activation.
#[derive(Clone, Debug)]
pub struct Var {
    /// The symbol by which the body refers to it.
    pub name: String,
    /// `Local` or `Param`.
    pub space: Space,
    /// Bytes.
    pub size: u32,
    /// Bytes, a power of two.
    pub align: u32,
    /// Bytes from the start of the frame.
    pub offset: u32,
}

/// Instructions that control enters at the first one only.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// In program order; may be empty.
    pub insts: Vec<Inst>,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Inst {
    /// Without one, every thread executes the operation.
    pub guard: Option<Guard>,
    /// What it does.
    pub op: Op,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate `p`.
    pub reg: Reg,
    /// Whether the guard holds when the predicate is false.
    pub negated: bool,
}

/// A source operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value of a register.
    Reg(Reg),
    /// Bit pattern. For predicates 0 or 1.
    Imm(u64),
}

/// A predicate source operand, possibly negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredOperand {
    /// A predicate register, or 0 or 1.
    pub value: Operand,
    /// Whether the operand is the opposite of `value`.
    pub negated: bool,
}

/// `[base + offset]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where the offset counts from.
    pub base: Base,
    /// Bytes.
    pub offset: i64,
}

/// Where the offset of an [`Address`] counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Absolute address: the offset alone.
    None,
    /// A 64-bit register, or a 32-bit one (zero-extended) for `.shared`, `.local`, `.const` and
    /// `.param`.
    Reg(Reg),
    /// A variable with static storage.
    Global(GlobalId),
    /// A variable in the frame.
    Var(VarId),
    /// A parameter of this function or kernel (index into [`Signature::params`]).
    Param(u32),
    /// A result of this function (index into [`Signature::rets`]).
    Ret(u32),
    /// A function; only in [`Op::MovAddr`].
    Func(FuncId),
}
