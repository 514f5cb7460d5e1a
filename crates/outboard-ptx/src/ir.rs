//! The verified program: what the parser produces and a back end consumes.
//!
//! Everything here is resolved and checked: every register, symbol and label exists, operand widths agree with the
//! instruction, and what the software device does not support has been refused. A back end may therefore match on
//! [`Op`] by rule (operation × type × modifiers) without validating again.
//!
//! Conventions
//! - A register has one declared type; only its width and whether it is a predicate matter. An instruction's own `ty`
//!   says how to read the bits. Widths agree except where PTX lets them differ: the destination of [`Op::Ld`],
//!   [`Op::Cvt`] and the source of [`Op::St`], [`Op::Cvt`] may be *wider* than the instruction's type. A loaded or
//!   converted value is then sign-extended for signed types and zero-extended for all others; a stored or converted
//!   source is truncated.
//! - An immediate is the bit pattern of the operand in the width that the instruction reads, in the low bits.
//! - The special register operands, `WARP_SZ` and symbols used as operands have been lowered to [`Op::MovSpecial`],
//!   [`Operand::Imm`] and [`Op::MovAddr`] with a fresh register.
//! - A guarded instruction does nothing in a thread whose guard does not hold.

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
    /// All variables in `.global`, `.const` and `.shared`, those declared inside functions included.
    pub globals: Vec<Global>,
    /// All functions; one that is only declared has no [`Function::body`].
    pub functions: Vec<Function>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// Neither `.visible` nor `.extern` nor `.weak`.
    Internal,
    Visible,
    Weak,
    Common,
    /// Declared here, defined in another module.
    Extern,
}

/// A variable with static storage.
#[derive(Clone, Debug)]
pub struct Global {
    pub name: String,
    /// `Global`, `Const` or `Shared`.
    pub space: Space,
    pub linkage: Linkage,
    /// `.attribute(.managed)`: host code may use the variable too.
    pub managed: bool,
    /// Bytes, a power of two.
    pub align: u32,
    /// Bytes. 0 for an array without size, see [`Global::is_dynamic_shared`].
    pub size: u64,
    /// Initial contents, no longer than `size`; what lies behind is zero. Always empty for `.shared`.
    pub init: Vec<u8>,
    /// Addresses to be written into the initial contents once addresses are known.
    pub relocs: Vec<Reloc>,
    /// For `.shared` variables: byte offset in the shared memory of a block. The same in each kernel that can reach
    /// the variable; variables that no kernel uses together may overlap. Meaningless for dynamic shared memory, which
    /// begins at [`Entry::static_shared`].
    pub shared_offset: u32,
}

impl Global {
    /// `.extern .shared` array: the dynamic shared memory of the launch.
    pub fn is_dynamic_shared(&self) -> bool {
        self.space == Space::Shared && self.linkage == Linkage::Extern
    }
}

/// An address in an initialiser: `bytes` bytes at `offset` receive the low bytes of `(target + addend) >> shift`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloc {
    pub offset: u64,
    /// 8 for whole 64-bit addresses, 4 in 32-bit modules, 1 for one byte cut out by a mask operator.
    pub bytes: u32,
    pub shift: u32,
    pub target: Symbol,
    pub addend: i64,
    /// `generic(sym)`: the generic address of the variable rather than the one in its own space.
    pub generic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    Global(GlobalId),
    Func(FuncId),
}

/// A kernel or a device function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub linkage: Linkage,
    /// Parameter and return layout; for a kernel the offsets are those of its parameter buffer.
    pub sig: Signature,
    /// `Some` for a kernel (`.entry`).
    pub entry: Option<Entry>,
    pub noreturn: bool,
    /// `None` for a declaration. Known system calls (`vprintf`, `malloc`, `free`, `__assertfail`) are declared so.
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
    pub min_ncta_per_sm: Option<u32>,
    pub max_nreg: Option<u32>,
    /// `.reqnctapercluster` or, lacking it, `.explicitcluster` with `.maxclusterrank`.
    pub req_cluster: Option<[u32; 3]>,
    /// Bytes of static shared memory of all variables that this kernel and its callees can reach, rounded up so that
    /// dynamic shared memory may begin here.
    pub static_shared: u32,
}

/// Where arguments lie in the argument area and results in the result area of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    pub params: Vec<Param>,
    pub rets: Vec<Param>,
    /// Bytes of the argument area (for a kernel: of the parameter buffer), the end of the last parameter.
    pub params_size: u32,
    /// Bytes of the result area.
    pub rets_size: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// Bytes, the whole array for array parameters.
    pub size: u32,
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
    /// Blocks in program order, the first one entered first. Only the last instruction of a block may be a control
    /// transfer (`Bra`, `BrxIdx`, `Ret`, `Exit`, `Trap`); without one, or when its guard does not hold, control passes
    /// to the next block. Behind the last block stands an implicit `Ret`.
    pub blocks: Vec<Block>,
}

/// A variable in the frame of one activation.
#[derive(Clone, Debug)]
pub struct Var {
    pub name: String,
    /// `Local` or `Param`.
    pub space: Space,
    pub size: u32,
    pub align: u32,
    /// Bytes from the start of the frame.
    pub offset: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Block {
    pub insts: Vec<Inst>,
}

#[derive(Clone, Debug)]
pub struct Inst {
    pub guard: Option<Guard>,
    pub op: Op,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub reg: Reg,
    pub negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Reg(Reg),
    /// Bit pattern. For predicates 0 or 1.
    Imm(u64),
}

/// A predicate source operand, possibly negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredOperand {
    pub value: Operand,
    pub negated: bool,
}

/// `[base + offset]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub base: Base,
    pub offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Absolute address: the offset alone.
    None,
    /// A 64-bit register, or a 32-bit one (zero-extended) for `.shared`, `.local`, `.const` and `.param`.
    Reg(Reg),
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

/// Floating-point rounding. Where PTX leaves it out the default (nearest even) is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Round {
    /// `.rn`, to nearest, ties to even.
    NearestEven,
    /// `.rz`, towards zero.
    Zero,
    /// `.rm`, towards minus infinity.
    Down,
    /// `.rp`, towards plus infinity.
    Up,
    /// `.rna`, to nearest, ties away from zero (conversion to tf32).
    NearestAway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntBinOp {
    Add,
    Sub,
    /// Low half of the product.
    MulLo,
    /// High half of the product.
    MulHi,
    /// Division by zero gives all ones, the minimum divided by -1 gives the minimum; neither traps.
    Div,
    /// Remainder with the sign of the dividend; by zero gives the dividend.
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntUnOp {
    Neg,
    Abs,
    Not,
    /// 1 if the source is 0, else 0.
    Cnot,
    /// Reverses the bits.
    Brev,
    /// Counts set bits; the result is 32 bits wide.
    Popc,
    /// Counts leading zeros; the result is 32 bits wide.
    Clz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatBinOp {
    Add,
    Sub,
    Mul,
    /// IEEE division with the given rounding.
    Div,
    /// `div.approx`, at most 2 ulp for divisors in 2^-126..2^126.
    DivApprox,
    /// `div.full`, at most 2 ulp over the full range.
    DivFull,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatUnOp {
    Neg,
    Abs,
    /// IEEE reciprocal with the given rounding.
    Rcp,
    /// IEEE square root with the given rounding.
    Sqrt,
    /// `.approx` forms: within the error that the PTX manual documents.
    RcpApprox,
    SqrtApprox,
    RsqrtApprox,
    SinApprox,
    CosApprox,
    Ex2Approx,
    Lg2Approx,
    TanhApprox,
}

/// Modifiers of a floating-point operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FloatMods {
    pub round: Round,
    /// Subnormal inputs and results become zeros of the same sign (f32, f16, f16x2 only).
    pub ftz: bool,
    /// The result is clamped to [0, 1], NaN becomes 0.
    pub sat: bool,
    /// Negative results become 0, NaN becomes the canonical NaN (fma of the 16-bit types).
    pub relu: bool,
    /// `.nan` of min and max: a NaN operand gives the canonical NaN (otherwise the other operand wins).
    pub nan: bool,
    /// `.xorsign.abs` of min and max: the operation on magnitudes, with the exclusive or of the signs.
    pub xorsign_abs: bool,
    /// `.oob` of fma: an out-of-bounds NaN pattern counts as 0.
    pub oob: bool,
}

impl FloatMods {
    /// Nearest even and no modifiers.
    pub const DEFAULT: FloatMods = FloatMods {
        round: Round::NearestEven,
        ftz: false,
        sat: false,
        relu: false,
        nan: false,
        xorsign_abs: false,
        oob: false,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MulMode {
    /// Low half.
    Lo,
    /// High half.
    Hi,
    /// The full product, twice as wide as the operands.
    Wide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShiftOp {
    /// Amounts of at least the width give 0.
    Shl,
    /// Sign-filling for signed types; amounts of at least the width give the fill everywhere.
    Shr,
}

/// What an amount or position beyond the width means in `shf`, `bmsk` and `szext`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WrapMode {
    Clamp,
    Wrap,
}

/// Comparison operators. The integer forms `lo`, `ls`, `hi`, `hs` are `Lt`, `Le`, `Gt`, `Ge` on unsigned types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unordered forms: true when an operand is NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Both operands are numbers.
    Num,
    /// At least one operand is NaN.
    Nan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoolOp {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TestpOp {
    Finite,
    Infinite,
    Number,
    NotANumber,
    /// Zeros count as normal.
    Normal,
    Subnormal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrmtMode {
    /// The selector names a byte (and sign replication) for each result byte.
    Generic,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

/// SIMD video operations on the bytes or half-words of 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VideoOp {
    Add,
    Sub,
    Avrg,
    Absdiff,
    Min,
    Max,
    Set(CmpOp),
}

/// How an ordinary memory access is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemOrder {
    Weak,
    Volatile,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Cta,
    Cluster,
    Gpu,
    Sys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomOp {
    And,
    Or,
    Xor,
    Exch,
    /// Compares with `b`, stores `c`.
    Cas,
    Add,
    /// `old >= b ? 0 : old + 1`
    Inc,
    /// `old == 0 || old > b ? b : old - 1`
    Dec,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoteMode {
    All,
    Any,
    Uni,
    /// The result is a 32-bit mask, of the other modes a predicate.
    Ballot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduxOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarRed {
    And,
    Or,
    /// The result is a 32-bit count, of the others a predicate.
    Popc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarOp {
    /// Waits for all threads of the barrier.
    Sync,
    /// Counts as arrived, does not wait.
    Arrive,
    /// Waits and reduces a predicate over the threads.
    Red { op: BarRed, dst: Reg, pred: PredOperand },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    X,
    Y,
    Z,
    W,
}

/// Special registers. All are 32 bits wide unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialReg {
    Tid(Dim),
    Ntid(Dim),
    Ctaid(Dim),
    Nctaid(Dim),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    /// 64 bits.
    GridId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    /// Low half of `Clock64`.
    Clock,
    ClockHi,
    /// 64 bits.
    Clock64,
    /// Nanoseconds, 64 bits.
    GlobalTimer,
    GlobalTimerLo,
    GlobalTimerHi,
    DynamicSmemSize,
    TotalSmemSize,
    AggrSmemSize,
    /// Position of the cluster in the grid.
    ClusterId(Dim),
    NClusterId(Dim),
    /// Position of the block in its cluster.
    ClusterCtaid(Dim),
    ClusterNctaid(Dim),
    ClusterCtaRank,
    ClusterNctaRank,
    /// Predicate.
    IsExplicitCluster,
    /// `%envreg0`..`%envreg31`.
    EnvReg(u8),
    /// `%pm0`..`%pm7` (performance counters, read as 0).
    Pm(u8),
    /// 64 bits.
    CurrentGraphExec,
    ReservedSmemOffsetBegin,
    ReservedSmemOffsetEnd,
    ReservedSmemOffsetCap,
}

impl SpecialReg {
    /// Natural type of the register.
    pub fn ty(self) -> Type {
        match self {
            SpecialReg::GridId | SpecialReg::Clock64 | SpecialReg::GlobalTimer | SpecialReg::CurrentGraphExec => {
                Type::U64
            }
            SpecialReg::IsExplicitCluster => Type::Pred,
            _ => Type::U32,
        }
    }
}

/// Who is called.
#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    Direct(FuncId),
    /// Address in a 64-bit register, with the layout of the prototype.
    Indirect {
        reg: Reg,
        sig: Box<Signature>,
    },
}

/// One argument or result of a call: where the caller keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallArg {
    /// A `.param` variable in the caller's frame, as large as the parameter.
    Var(VarId),
    /// A register, as wide as the parameter's type. A predicate counts as one byte.
    Reg(Reg),
    /// Only as an argument.
    Imm(u64),
    /// A result that nobody reads.
    Unused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierOp {
    Init {
        count: Operand,
    },
    Inval,
    /// `arrive` (and `arrive.noComplete`): the state token goes to `state`. `drop` also lowers the expected count of
    /// the following phases. `expect_tx` adds to the pending transaction count before the arrival.
    Arrive {
        state: Option<Reg>,
        count: Operand,
        drop: bool,
        expect_tx: Option<Operand>,
    },
    /// Adds to the pending transaction count.
    ExpectTx {
        count: Operand,
    },
    /// Takes from the pending transaction count.
    CompleteTx {
        count: Operand,
    },
    /// Tests whether the phase of the state token is complete; may wait a bounded time when `wait` is set.
    Test {
        dst: Reg,
        state: Operand,
        wait: bool,
    },
    /// As `Test`, for the phase of the given parity (0 or 1).
    TestParity {
        dst: Reg,
        parity: Operand,
        wait: bool,
    },
    /// The pending count of a state token (the address is not used).
    PendingCount {
        dst: Reg,
        state: Operand,
    },
    /// `cp.async.mbarrier.arrive`: arrives once the copies started by this thread are complete. When `noinc` is not
    /// set, the pending count is raised first, so that the arrival does not count.
    CpAsyncArrive {
        noinc: bool,
    },
}

/// The operation of an instruction, by rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    // Integer arithmetic and logic.
    /// `ty` is an integer type (or packed 16-bit integers for add, min, max); `And`, `Or`, `Xor` have `.bN` or
    /// `.pred`. `sat` (add, sub, s32 only) clamps to the type's range.
    IntBin {
        op: IntBinOp,
        ty: Type,
        sat: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// `Not` also takes `.pred`.
    IntUn {
        op: IntUnOp,
        ty: Type,
        dst: Reg,
        a: Operand,
    },
    /// The amount `b` is 32 bits wide.
    Shift {
        op: ShiftOp,
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// Full product of two 16- or 32-bit operands (`ty`); `dst` is twice as wide.
    MulWide {
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// `a * b` as `mode` says, plus `c`. For `Wide`, `c` and `dst` are twice as wide as `ty`. `sat`: only `.hi.s32`.
    Mad {
        mode: MulMode,
        ty: Type,
        sat: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// Product of the low 24 bits: `Lo` gives bits 31..0 of it, `Hi` bits 47..16.
    Mul24 {
        hi: bool,
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// `sat` only with `hi` and s32.
    Mad24 {
        hi: bool,
        ty: Type,
        sat: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// Addition or subtraction with the carry flag of the thread: `carry_in` adds (borrows) it, `carry_out` sets it.
    AddCarry {
        sub: bool,
        ty: Type,
        carry_in: bool,
        carry_out: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// `mad.cc` and `madc`; `mode` is `Lo` or `Hi`, the flag is that of the final addition.
    MadCarry {
        mode: MulMode,
        ty: Type,
        carry_in: bool,
        carry_out: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// `|a - b| + c`
    Sad {
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// Position of the highest non-sign bit (32-bit result, all ones if none), or with `shiftamt` the left shift that
    /// brings it to the top.
    Bfind {
        ty: Type,
        shiftamt: bool,
        dst: Reg,
        a: Operand,
    },
    /// Position of the `offset`-th set bit of `mask` from `base`, or all ones.
    Fns {
        dst: Reg,
        mask: Operand,
        base: Operand,
        offset: Operand,
    },
    /// Bit field extract; `pos` and `len` are 32 bits wide and only their low byte counts.
    Bfe {
        ty: Type,
        dst: Reg,
        a: Operand,
        pos: Operand,
        len: Operand,
    },
    /// Inserts the low bits of `a` into `b`.
    Bfi {
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
        pos: Operand,
        len: Operand,
    },
    /// Mask of `b` bits from position `a`.
    Bmsk {
        mode: WrapMode,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// Sign- or zero-extends the low `b` bits of `a`.
    Szext {
        mode: WrapMode,
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// Funnel shift of `b:a` (`b` the upper word) by `c`; `left` gives the upper word, otherwise the lower.
    Shf {
        left: bool,
        mode: WrapMode,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    Prmt {
        mode: PrmtMode,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// Any function of three bits: bit `4a + 2b + c` of `lut`. With `pred`: the predicate gets
    /// `(result != 0) op q`.
    Lop3 {
        lut: u8,
        dst: Option<Reg>,
        a: Operand,
        b: Operand,
        c: Operand,
        pred: Option<(Reg, BoolOp, PredOperand)>,
    },
    /// Four-way byte dot product plus `c`.
    Dp4a {
        a_signed: bool,
        b_signed: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// Dot product of the two half-words of `a` with the low (or `hi`: high) two bytes of `b`, plus `c`.
    Dp2a {
        hi: bool,
        a_signed: bool,
        b_signed: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// SIMD video operation on 2 or 4 lanes. Lanes of the result that `mask` leaves out come from `c`; with
    /// `accumulate` the lane results that `mask` selects (not cut to the width of a lane) are added to `c` instead.
    Video {
        op: VideoOp,
        lanes: u8,
        d_signed: bool,
        a_signed: bool,
        b_signed: bool,
        sat: bool,
        accumulate: bool,
        mask: u8,
        /// Which byte or half-word of the pair (`a` first: 0..lanes, then `b`) feeds each lane.
        a_sel: [u8; 4],
        b_sel: [u8; 4],
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },

    // Floating point. `ty` is f16, f16x2, bf16, bf16x2, f32, f32x2 or f64.
    FloatBin {
        op: FloatBinOp,
        ty: Type,
        mods: FloatMods,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    FloatUn {
        op: FloatUnOp,
        ty: Type,
        mods: FloatMods,
        dst: Reg,
        a: Operand,
    },
    /// One rounding. `mad` of f32 and f64 is this too.
    Fma {
        ty: Type,
        mods: FloatMods,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// `b` with the sign of `a`.
    Copysign {
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// `dst` is a predicate.
    Testp {
        op: TestpOp,
        ty: Type,
        dst: Reg,
        a: Operand,
    },

    // Comparison and selection.
    /// `p` gets `a cmp b`, combined with `c` when given; `q` gets the complement of the comparison, combined likewise.
    /// For packed types `p` is the result of the low lane and `q` of the high one.
    Setp {
        cmp: CmpOp,
        ty: Type,
        ftz: bool,
        combine: Option<(BoolOp, PredOperand)>,
        p: Option<Reg>,
        q: Option<Reg>,
        a: Operand,
        b: Operand,
    },
    /// As `Setp`, with true as all ones for integer and 1.0 for floating-point `dst_ty`; lane-wise for packed types.
    Set {
        cmp: CmpOp,
        dst_ty: Type,
        ty: Type,
        ftz: bool,
        combine: Option<(BoolOp, PredOperand)>,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    Selp {
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
        pred: PredOperand,
    },
    /// `a` if `c >= 0` else `b`; `c` is s32 or f32 (`cmp_ty`), NaN counts as less.
    Slct {
        ty: Type,
        cmp_ty: Type,
        ftz: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },

    // Data movement and conversion.
    /// `.pred`, any `.bN` (128 included) and all scalar types.
    Mov {
        ty: Type,
        dst: Reg,
        a: Operand,
    },
    /// Builds a value from equal parts, the first one lowest.
    Pack {
        ty: Type,
        dst: Reg,
        parts: Vec<Operand>,
    },
    /// Splits a value into equal parts, the first one lowest; `None` for the sink `_`.
    Unpack {
        ty: Type,
        parts: Vec<Option<Reg>>,
        a: Operand,
    },
    MovSpecial {
        dst: Reg,
        sreg: SpecialReg,
    },
    /// Address of a symbol in its own space (see [`Op::Cvta`]); `dst` is 64 bits wide, or 32 where PTX allows it.
    MovAddr {
        dst: Reg,
        addr: Address,
    },
    /// `round` rounds floating-point results; `int_round` (`rni`, `rzi`, `rmi`, `rpi`) rounds to an integral value,
    /// both for integer results and for float-to-float conversions of the same type. Out of range values clamp. NaN to
    /// integer gives 0, but only the top bit set when the source is f64 or the result 64 bits wide.
    Cvt {
        dst_ty: Type,
        src_ty: Type,
        round: Option<Round>,
        int_round: Option<Round>,
        ftz: bool,
        sat: bool,
        /// `.satfinite`: NaN and infinities become the greatest finite value of the small formats.
        satfinite: bool,
        relu: bool,
        dst: Reg,
        a: Operand,
    },
    /// Two f32 values into a packed type; `a` becomes the upper lane.
    CvtPair {
        dst_ty: Type,
        round: Round,
        satfinite: bool,
        relu: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// `cvt.pack.sat.dst_ty.src_ty`: saturates `a` and `b`; they become the low lanes (`b` lowest) and for types of 8
    /// bits or less the lower bits of `c` move up.
    CvtPack {
        dst_ty: Type,
        src_ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Option<Operand>,
    },
    /// Address in `space` to generic address, or (`to`) the other way round.
    Cvta {
        to: bool,
        space: Space,
        dst: Reg,
        a: Operand,
    },
    /// `dst` is a predicate: whether a generic address lies in `space`.
    Isspacep {
        space: Space,
        dst: Reg,
        a: Operand,
    },

    // Memory.
    /// 1, 2, 4 or 8 destinations; `None` for the sink `_`. Aligned to `ty.size() * dsts.len()`.
    Ld {
        space: Space,
        ty: Type,
        order: MemOrder,
        scope: Scope,
        dsts: Vec<Option<Reg>>,
        addr: Address,
    },
    St {
        space: Space,
        ty: Type,
        order: MemOrder,
        scope: Scope,
        srcs: Vec<Operand>,
        addr: Address,
    },
    /// `dst` is `None` for `red` and for the sink. `c` only for `Cas`.
    Atom {
        op: AtomOp,
        ty: Type,
        space: Space,
        order: MemOrder,
        scope: Scope,
        dst: Option<Reg>,
        addr: Address,
        b: Operand,
        c: Option<Operand>,
    },
    /// Copies `bytes` (4, 8 or 16) from global to shared memory; only the first `src_bytes` are read, the rest is
    /// zeros. May be done at once: waiting for groups of copies has been lowered to nothing.
    CpAsync {
        bytes: u32,
        src_bytes: Option<Operand>,
        ignore_src: Option<PredOperand>,
        dst: Address,
        src: Address,
    },
    /// `space` is `Shared` or `Generic` (an address in shared memory all the same). `PendingCount` has no address.
    Mbarrier {
        op: MbarrierOp,
        space: Space,
        addr: Address,
    },
    /// `membar` and `fence`; `sc` for sequential consistency.
    Fence {
        sc: bool,
        scope: Scope,
    },

    // Control.
    Bra {
        target: BlockId,
    },
    /// Branches to `targets[index]`; an index beyond the list is undefined behaviour in PTX (trap).
    BrxIdx {
        index: Operand,
        targets: Vec<BlockId>,
    },
    Call {
        callee: Callee,
        rets: Vec<CallArg>,
        args: Vec<CallArg>,
    },
    Ret,
    Exit,
    Trap,
    /// Does nothing without a debugger.
    Brkpt,

    // Threads of a block and a warp.
    /// `threads` is a multiple of 32; all threads of the block when absent.
    Bar {
        op: BarOp,
        id: Operand,
        threads: Option<Operand>,
    },
    /// `barrier.cluster`: a cluster is one block here, so arrive does nothing and wait is a block barrier.
    ClusterArrive,
    ClusterWait,
    /// `bar.warp.sync`
    WarpSync {
        mask: Operand,
    },
    /// `pred` tells whether the source lane was in range. Without `mask`: the legacy form, all active lanes.
    Shfl {
        mode: ShflMode,
        dst: Option<Reg>,
        pred: Option<Reg>,
        a: Operand,
        b: Operand,
        c: Operand,
        mask: Option<Operand>,
    },
    Vote {
        mode: VoteMode,
        dst: Reg,
        pred: PredOperand,
        mask: Option<Operand>,
    },
    MatchAny {
        ty: Type,
        dst: Reg,
        a: Operand,
        mask: Operand,
    },
    /// `dst` gets the mask if all have the same value, else 0.
    MatchAll {
        ty: Type,
        dst: Option<Reg>,
        pred: Option<Reg>,
        a: Operand,
        mask: Operand,
    },
    ActiveMask {
        dst: Reg,
    },
    /// `abs` and `nan` only for f32 min and max.
    Redux {
        op: ReduxOp,
        ty: Type,
        abs: bool,
        nan: bool,
        dst: Reg,
        a: Operand,
        mask: Operand,
    },
    /// `dst` gets the elected lane, `pred` is true in that lane.
    Elect {
        dst: Option<Reg>,
        pred: Reg,
        mask: Operand,
    },
    /// Nanoseconds, a hint.
    NanoSleep {
        ns: Operand,
    },
}

impl Op {
    /// True for a control transfer, which ends its block.
    pub fn is_terminator(&self) -> bool {
        matches!(self, Op::Bra { .. } | Op::BrxIdx { .. } | Op::Ret | Op::Exit | Op::Trap)
    }
}
