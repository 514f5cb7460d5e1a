//! What instructions are modified by: operators, roundings, orders.
#![expect(missing_docs, reason = "variants without docs are the PTX modifiers of those names")]

use super::{PredOperand, Reg};

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

/// Integer operations with two sources.
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

/// Integer operations with one source.
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

/// Floating-point operations with two sources.
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

/// Floating-point operations with one source.
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
    /// `.nan` of min and max: a NaN operand gives the canonical NaN (otherwise the other operand
    /// wins).
    pub nan: bool,
    /// `.xorsign.abs` of min and max: the operation on magnitudes, with the exclusive or of the
    /// signs.
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

/// Which part of a product an integer multiplication gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MulMode {
    /// Low half.
    Lo,
    /// High half.
    Hi,
    /// The full product, twice as wide as the operands.
    Wide,
}

/// Direction of a shift.
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

/// Comparison operators. The integer forms `lo`, `ls`, `hi`, `hs` are `Lt`, `Le`, `Gt`, `Ge` on
/// unsigned types.
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

/// How `setp` combines a comparison with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoolOp {
    And,
    Or,
    Xor,
}

/// What `testp` tests a floating-point number for.
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

/// How `prmt` selects bytes.
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

/// The threads that see an access in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Cta,
    Cluster,
    Gpu,
    Sys,
}

/// What an atomic operation computes from memory and operand.
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

/// Which lane `shfl` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

/// What `vote` computes of the predicates of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoteMode {
    All,
    Any,
    Uni,
    /// The result is a 32-bit mask, of the other modes a predicate.
    Ballot,
}

/// What `redux` computes of the values of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduxOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// What a barrier computes of the predicates of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarRed {
    And,
    Or,
    /// The result is a 32-bit count, of the others a predicate.
    Popc,
}

/// What a thread does at a barrier of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarOp {
    /// Waits for all threads of the barrier.
    Sync,
    /// Counts as arrived, does not wait.
    Arrive,
    /// Waits and reduces a predicate over the threads.
    Red { op: BarRed, dst: Reg, pred: PredOperand },
}
