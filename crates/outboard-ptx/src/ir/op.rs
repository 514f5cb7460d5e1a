//! The operations.
#![expect(
    missing_docs,
    reason = "fields without docs are operands and modifiers of the PTX instruction"
)]

use super::modifiers::*;
use super::parts::{CallArg, Callee, MbarrierOp};
use super::{
    Address, BlockId, Boundary, Fetch, Geometry, Operand, PredOperand, Query, Reg, SpecialReg,
};
use crate::types::{Space, Type};

/// The operation of an instruction, by rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    // Integer arithmetic and logic.
    /// `ty` is an integer type (or packed 16-bit integers for add, min, max); `And`, `Or`, `Xor`
    /// have `.bN` or `.pred`. `sat` (add, sub, s32 only) clamps to the type's range.
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
    /// `a * b` as `mode` says, plus `c`. For `Wide`, `c` and `dst` are twice as wide as `ty`.
    /// `sat`: only `.hi.s32`.
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
    /// Addition or subtraction with the carry flag of the thread, which `carry_in` reads and
    /// `carry_out` sets. A subtraction adds the complement, as hardware does: its flag is set when
    /// nothing was borrowed, which compilers rely on when they read it with an addition.
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
    /// Position of the highest non-sign bit (32-bit result, all ones if none), or with `shiftamt`
    /// the left shift that brings it to the top.
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
    /// Funnel shift of `b:a` (`b` the upper word) by `c`; `left` gives the upper word, otherwise
    /// the lower.
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
    /// Dot product of the two half-words of `a` with the low (or `hi`: high) two bytes of `b`, plus
    /// `c`.
    Dp2a {
        hi: bool,
        a_signed: bool,
        b_signed: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// SIMD video operation on 2 or 4 lanes. Lanes of the result that `mask` leaves out come from
    /// `c`; with `accumulate` the lane results that `mask` selects (not cut to the width of a lane)
    /// are added to `c` instead.
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
    /// `p` gets `a cmp b`, combined with `c` when given; `q` gets the complement of the comparison,
    /// combined likewise. For packed types `p` is the result of the low lane and `q` of the high
    /// one.
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
    /// As `Setp`, with true as all ones for integer and 1.0 for floating-point `dst_ty`; lane-wise
    /// for packed types.
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
    /// Address of a symbol in its own space (see [`Op::Cvta`]); `dst` is 64 bits wide, or 32 where
    /// PTX allows it.
    MovAddr {
        dst: Reg,
        addr: Address,
    },
    /// `round` rounds floating-point results; `int_round` (`rni`, `rzi`, `rmi`, `rpi`) rounds to an
    /// integral value, both for integer results and for float-to-float conversions of the same
    /// type. Out of range values clamp. NaN to integer gives 0, but only the top bit set when the
    /// source is f64 or the result 64 bits wide.
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
    /// `cvt.pack.sat.dst_ty.src_ty`: saturates `a` and `b`; they become the low lanes (`b` lowest)
    /// and for types of 8 bits or less the lower bits of `c` move up.
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
    /// `tex` and `tld4`. The coordinates, one for each of [`Geometry::coordinates`], have 32 bits
    /// each: integers for layers, `coord_ty` otherwise.
    Tex {
        fetch: Fetch,
        geometry: Geometry,
        coord_ty: Type,
        ty: Type,
        dsts: Vec<Option<Reg>>,
        /// A 64-bit texture object.
        object: Operand,
        coords: Vec<Operand>,
        /// The level of detail, an `.f32`; the first level without one.
        level: Option<Operand>,
    },
    /// `suld.b`: the first coordinate behind the layer counts bytes.
    SurfaceLoad {
        geometry: Geometry,
        ty: Type,
        boundary: Boundary,
        dsts: Vec<Option<Reg>>,
        object: Operand,
        coords: Vec<Operand>,
    },
    /// `sust.b`, likewise.
    SurfaceStore {
        geometry: Geometry,
        ty: Type,
        boundary: Boundary,
        srcs: Vec<Operand>,
        object: Operand,
        coords: Vec<Operand>,
    },
    /// `txq` or, of a surface, `suq`.
    TextureQuery {
        query: Query,
        surface: bool,
        dst: Reg,
        object: Operand,
    },
    /// Copies `bytes` (4, 8 or 16) from global to shared memory; only the first `src_bytes` are
    /// read, the rest is zeros. May be done at once: waiting for groups of copies has been lowered
    /// to nothing.
    CpAsync {
        bytes: u32,
        src_bytes: Option<Operand>,
        ignore_src: Option<PredOperand>,
        dst: Address,
        src: Address,
    },
    /// `space` is `Shared` or `Generic` (an address in shared memory all the same). `PendingCount`
    /// has no address.
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
    /// `barrier.cluster`: a cluster is one block here, so arrive does nothing and wait is a block
    /// barrier.
    ClusterArrive,
    ClusterWait,
    /// `bar.warp.sync`
    WarpSync {
        mask: Operand,
    },
    /// `pred` tells whether the source lane was in range. Without `mask`: the legacy form, all
    /// active lanes.
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
