//! What each register of a body holds, as a sum over the lane.

use crate::codegen::analysis::is_warp_operation;
use crate::codegen::steps::linear::{Atom, Linear};
use crate::codegen::steps::regions::Regions;
use crate::codegen::visit::{Use, registers};
use outboard_ptx::ir::{
    Address, Base, Body, Dim, Function, Inst, IntBinOp, MemOrder, Module, MulMode, Op, Operand, Reg,
};
use outboard_ptx::ir::{ShiftOp, SpecialReg};
use outboard_ptx::{Space, Type};

/// How often a body is gone through until all is known of its registers.
const ROUNDS: usize = 16;

/// What registers hold, if `rows` where no warp has lanes of two rows.
pub(crate) struct Registers<'a> {
    module: &'a Module,
    function: &'a Function,
    rows: bool,
    values: Vec<Option<Linear>>,
    /// Registers that more than one instruction writes.
    pub(super) merged: Vec<bool>,
    /// Written where only some lanes may come by, and read where others do.
    pub(super) apart: Vec<bool>,
    /// The loop in which a register is written and which lanes may leave at different times.
    pub(super) left: Vec<Option<(usize, usize)>>,
    /// What a register that is counted up is counted up by.
    strides: Vec<Stride>,
    /// Blocks that end with branches which lanes may take differently.
    pub(crate) branching: Vec<usize>,
}

/// How the value of a register follows from the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Stride {
    #[default]
    None,
    /// By one instruction, which adds this.
    Adds(Linear),
    Many,
}

impl<'a> Registers<'a> {
    pub(crate) fn new(
        module: &'a Module,
        function: &'a Function,
        body: &Body,
        regions: &Regions,
        rows: bool,
    ) -> Self {
        let count = body.regs.len();
        let mut writes = vec![0u32; count];
        let insts = || {
            body.blocks
                .iter()
                .enumerate()
                .flat_map(|(at, block)| block.insts.iter().map(move |i| (at, i)))
        };
        for (_, inst) in insts() {
            registers(inst, |how, reg| writes[reg.0 as usize] += u32::from(how == Use::Write));
        }
        let merged = writes.iter().map(|&n| n > 1).collect();
        let mut this = Registers {
            module,
            function,
            rows,
            values: vec![None; count],
            merged,
            apart: vec![false; count],
            left: vec![None; count],
            strides: vec![Stride::None; count],
            branching: Vec::new(),
        };
        for round in 0.. {
            let mut changed = insts().fold(false, |changed, (_, inst)| this.inst(inst) | changed);
            let found = this.find_branching(body);
            if found != this.branching || round == 0 {
                changed |= this.part(body, regions, &found);
                this.branching = found;
            }
            if round == ROUNDS {
                let merged: Vec<usize> = (0..count).filter(|&reg| this.merged[reg]).collect();
                merged.into_iter().for_each(|reg| this.apart[reg] = true);
            }
            if !changed {
                break;
            }
            if round == 2 * ROUNDS {
                this.values.fill(Some(Linear::unknown()));
                break;
            }
        }
        for (_, inst) in insts() {
            this.note_stride(inst);
        }
        this
    }

    /// What an instruction in `block` reads as an address.
    pub(crate) fn address(&self, regions: &Regions, block: usize, address: &Address) -> Linear {
        let base = self.base(address).unwrap_or_else(Linear::unknown);
        // Lanes that have left a loop may have done so in different rounds of it.
        let mixed = base.terms.iter().any(|(atom, _)| match atom {
            Atom::Reg(reg) => self.left[*reg as usize].is_some_and(|(first, last)| {
                !(first..=last).contains(&block) && regions.follows(block, first)
            }),
            _ => false,
        });
        if mixed { base.blurred() } else { base }
    }

    /// Whether a register is written once, and not in a loop that lanes leave at different times.
    pub(crate) fn is_fixed(&self, reg: u32) -> bool {
        !self.merged[reg as usize] && self.left[reg as usize].is_none()
    }

    /// Whether a register holds the same in all lanes and nothing else: what its atom stands for.
    pub(crate) fn is_plain(&self, reg: u32) -> bool {
        self.values[reg as usize].as_ref() == Some(&Linear::atom(Atom::Reg(reg)))
    }

    /// What an instruction adds to a register, if that is all that is ever done to it but to begin
    /// with.
    pub(crate) fn added(&self, inst: &Inst, reg: u32) -> Option<&Linear> {
        self.stride(reg).filter(|stride| self.increment(inst, Reg(reg)).as_ref() == Some(stride))
    }

    /// What is added to a register again and again.
    pub(crate) fn stride(&self, reg: u32) -> Option<&Linear> {
        match &self.strides[reg as usize] {
            Stride::Adds(stride) => Some(stride),
            _ => None,
        }
    }

    fn note_stride(&mut self, inst: &Inst) {
        let mut regs = Vec::new();
        written(inst, |reg| regs.push(reg));
        for reg in regs {
            if let Some(stride) = self.increment(inst, Reg(reg as u32)) {
                let old = &mut self.strides[reg];
                *old = if *old == Stride::None { Stride::Adds(stride) } else { Stride::Many };
            }
        }
    }

    /// What an instruction adds to a register, if it adds anything that is known and does not
    /// change.
    fn increment(&self, inst: &Inst, reg: Reg) -> Option<Linear> {
        if !self.merged[reg.0 as usize] || inst.guard.is_some() {
            return None;
        }
        let own = self.values[reg.0 as usize].as_ref()?;
        let stride = self.result(&inst.op, reg)?.plus(own, -1);
        let fixed = stride.terms.iter().all(|(atom, _)| match atom {
            Atom::Reg(reg) => !self.merged[*reg as usize] && self.is_plain(*reg),
            Atom::NtidX => true,
            _ => false,
        });
        (stride.is_uniform() && fixed).then_some(stride)
    }

    fn find_branching(&self, body: &Body) -> Vec<usize> {
        let uniform =
            |reg: Reg| self.values[reg.0 as usize].as_ref().is_some_and(Linear::is_uniform);
        let differs = |inst: &Inst| match &inst.op {
            Op::BrxIdx { index: Operand::Reg(reg), .. } => !uniform(*reg),
            op => op.is_terminator() && inst.guard.is_some_and(|guard| !uniform(guard.reg)),
        };
        let last = |block: &usize| body.blocks[*block].insts.last().is_some_and(differs);
        (0..body.blocks.len()).filter(last).collect()
    }

    /// Takes in what an instruction writes.
    fn inst(&mut self, inst: &Inst) -> bool {
        let mut regs = Vec::new();
        written(inst, |reg| regs.push(reg));
        let mut changed = false;
        for index in regs {
            let reg = Reg(index as u32);
            let Some(mut value) = self.result(&inst.op, reg) else { continue };
            let guarded = inst.guard.is_some_and(|guard| {
                !self.values[guard.reg.0 as usize].as_ref().is_some_and(Linear::is_uniform)
            });
            if guarded || self.merged[index] && self.apart[index] {
                value = value.blurred();
            }
            if self.merged[index] {
                value = merge(reg, &value, self.values[index].as_ref());
            }
            if self.values[index].as_ref() != Some(&value) {
                self.values[index] = Some(value);
                changed = true;
            }
        }
        changed
    }

    /// What an operation leaves in `dst`; `None` while nothing is known of what it reads.
    fn result(&self, op: &Op, dst: Reg) -> Option<Linear> {
        let own = Linear::atom(Atom::Reg(dst.0));
        Some(match op {
            Op::Mov { a, .. } | Op::Cvta { a, .. } => self.operand(a)?,
            Op::Cvt { dst_ty, src_ty, a, .. } if is_index(*dst_ty) && is_index(*src_ty) => {
                self.operand(a)?
            }
            Op::MovAddr { addr, .. } => self.base(addr)?,
            Op::MovSpecial { sreg, .. } => self.special(*sreg, own),
            Op::IntBin { op, sat: false, a, b, .. } => {
                self.binary(*op, &self.operand(a)?, &self.operand(b)?, own)
            }
            Op::MulWide { a, b, .. } => self.product(&self.operand(a)?, &self.operand(b)?, own),
            Op::Mad { mode: MulMode::Lo | MulMode::Wide, sat: false, a, b, c, .. } => {
                let product = self.product(&self.operand(a)?, &self.operand(b)?, own.clone());
                let addend = self.operand(c)?;
                // The register's atom is not the product but all that does not depend on the lane.
                if product == own { rest_in(dst, &addend) } else { product.plus(&addend, 1) }
            }
            Op::Shift { op, a, b, .. } => {
                self.shift(*op, &self.operand(a)?, &self.operand(b)?, own)
            }
            Op::Ld { space, ty, order, dsts, addr, .. } => {
                self.loaded(*space, *ty, *order, dsts, addr, dst)?
            }
            Op::Atom { .. } | Op::Call { .. } | Op::Tex { .. } | Op::SurfaceLoad { .. } => {
                Linear::unknown()
            }
            Op::Mbarrier { .. } | Op::Bar { .. } => Linear::unknown(),
            op if is_warp_operation(op) => Linear::unknown(),
            op => {
                if self.same_in_all(op)? {
                    own
                } else {
                    Linear::unknown()
                }
            }
        })
    }

    /// Whether an operation reads only what is the same in all lanes.
    fn same_in_all(&self, op: &Op) -> Option<bool> {
        let mut same = Some(true);
        let inst = Inst { guard: None, op: op.clone(), line: 0 };
        registers(&inst, |how, reg| {
            if how == Use::Read {
                let uniform = self.values[reg.0 as usize].as_ref().map(Linear::is_uniform);
                same = match (same, uniform) {
                    (Some(a), Some(b)) => Some(a && b),
                    _ => None,
                };
            }
        });
        same
    }

    fn operand(&self, operand: &Operand) -> Option<Linear> {
        match operand {
            Operand::Reg(reg) => self.values[reg.0 as usize].clone(),
            // Sign-extended from 32 bits: an index may go down, and no address is that high.
            Operand::Imm(bits) if *bits <= u64::from(u32::MAX) => {
                Some(Linear::constant(i64::from(*bits as u32 as i32)))
            }
            Operand::Imm(bits) => Some(Linear::constant(*bits as i64)),
        }
    }

    fn base(&self, address: &Address) -> Option<Linear> {
        let offset = Linear::constant(address.offset);
        let base = match address.base {
            Base::Reg(reg) => self.values[reg.0 as usize].clone()?,
            Base::None => Linear::default(),
            Base::Global(id) => {
                let global = &self.module.globals[id.0 as usize];
                Linear::atom(match global.space {
                    Space::Shared if global.is_dynamic_shared() => Atom::Dynamic,
                    Space::Shared => Atom::Shared(id.0),
                    _ => Atom::Global(id.0),
                })
            }
            _ => Linear::unknown(),
        };
        Some(base.plus(&offset, 1))
    }

    fn special(&self, sreg: SpecialReg, own: Linear) -> Linear {
        match sreg {
            SpecialReg::Tid(Dim::X) if self.rows => {
                Linear::lane(0).plus(&Linear::atom(Atom::FirstLane), 1)
            }
            SpecialReg::Tid(Dim::X) => Linear::lane(0),
            SpecialReg::Tid(Dim::Y) if self.rows => Linear::atom(Atom::TidY),
            SpecialReg::Tid(Dim::Y) => Linear::lane(1),
            SpecialReg::Tid(Dim::Z) if self.rows => Linear::atom(Atom::TidZ),
            SpecialReg::Tid(Dim::Z) => Linear::lane(2),
            SpecialReg::LaneId if self.rows => Linear::lane(0),
            SpecialReg::Ntid(Dim::X) => Linear::atom(Atom::NtidX),
            SpecialReg::LaneId
            | SpecialReg::LaneMaskEq
            | SpecialReg::LaneMaskLe
            | SpecialReg::LaneMaskLt
            | SpecialReg::LaneMaskGe
            | SpecialReg::LaneMaskGt
            | SpecialReg::Clock
            | SpecialReg::ClockHi
            | SpecialReg::Clock64
            | SpecialReg::GlobalTimer
            | SpecialReg::GlobalTimerLo
            | SpecialReg::GlobalTimerHi => Linear::unknown(),
            _ => own,
        }
    }

    fn binary(&self, op: IntBinOp, a: &Linear, b: &Linear, own: Linear) -> Linear {
        match op {
            IntBinOp::Add => a.plus(b, 1),
            IntBinOp::Sub => a.plus(b, -1),
            IntBinOp::MulLo => self.product(a, b, own),
            IntBinOp::And if self.is_thread(a) && b.as_constant() == Some(31) => Linear::lane(0),
            // Compilers add what does not overlap with this.
            IntBinOp::Or => match b.as_constant() {
                Some(bits)
                    if bits >= 0
                        && a.is_multiple((bits as u64 + 1).next_power_of_two().max(1) as i64) =>
                {
                    a.plus(b, 1)
                }
                _ => uniform(a, b, own),
            },
            _ => uniform(a, b, own),
        }
    }

    fn product(&self, a: &Linear, b: &Linear, own: Linear) -> Linear {
        let row = |y: &Linear, n: &Linear| *y == Linear::lane(1) && *n == Linear::atom(Atom::NtidX);
        match (a.as_constant(), b.as_constant()) {
            (_, Some(factor)) => a.times(factor),
            (Some(factor), _) => b.times(factor),
            _ if row(a, b) || row(b, a) => Linear::lane(3),
            _ => uniform(a, b, own),
        }
    }

    fn shift(&self, op: ShiftOp, a: &Linear, b: &Linear, own: Linear) -> Linear {
        match (op, b.as_constant()) {
            (ShiftOp::Shl, Some(bits @ 0..=31)) => a.times(1 << bits),
            // The number of the warp.
            (ShiftOp::Shr, Some(5..=31)) if self.is_thread(a) => own,
            _ => uniform(a, b, own),
        }
    }

    /// Whether it is `%tid.x`, of which 32 in a row are the lanes of a warp.
    fn is_thread(&self, value: &Linear) -> bool {
        self.rows && *value == Linear::lane(0).plus(&Linear::atom(Atom::FirstLane), 1)
    }

    fn loaded(
        &self,
        space: Space,
        ty: Type,
        order: MemOrder,
        dsts: &[Option<Reg>],
        addr: &Address,
        dst: Reg,
    ) -> Option<Linear> {
        if let (Space::Param, Base::Param(index)) = (space, addr.base) {
            if self.function.entry.is_none() {
                return Some(Linear::unknown());
            }
            let start =
                self.function.sig.params.get(index as usize).map_or(0, |param| param.offset);
            let which = dsts.iter().position(|d| *d == Some(dst)).unwrap_or(0) as u32;
            let offset = (i64::from(start) + addr.offset) as u32 + which * ty.size();
            return Some(Linear::atom(if ty.size() == 8 {
                Atom::Param(offset)
            } else {
                Atom::Reg(dst.0)
            }));
        }
        let fixed = order == MemOrder::Weak && !matches!(space, Space::Local | Space::Param);
        let same = fixed && self.base(addr)?.is_uniform();
        Some(if same { Linear::atom(Atom::Reg(dst.0)) } else { Linear::unknown() })
    }
}

/// Calls `f` for each register that an instruction writes.
pub(super) fn written(inst: &Inst, mut f: impl FnMut(usize)) {
    registers(inst, |how, reg| {
        if how == Use::Write {
            f(reg.0 as usize);
        }
    });
}

/// A result of which no more is known than that it is the same in all lanes, if what it is made of
/// is.
fn uniform(a: &Linear, b: &Linear, own: Linear) -> Linear {
    if a.is_uniform() && b.is_uniform() { own } else { Linear::unknown() }
}

/// A type that indices and addresses have.
fn is_index(ty: Type) -> bool {
    !ty.is_float() && matches!(ty.size(), 4 | 8)
}

/// The value of a register whose part that depends on the lane, and whose symbol, are those of
/// `like`.
fn rest_in(reg: Reg, like: &Linear) -> Linear {
    if like.divergent {
        return like.clone().blurred();
    }
    let own = Linear::atom(Atom::Reg(reg.0));
    let terms = like.symbol().map_or(own.clone(), |symbol| Linear::atom(symbol).plus(&own, 1));
    Linear { lanes: like.lanes, ..terms }
}

/// What a register that several instructions write holds after one of them.
fn merge(reg: Reg, value: &Linear, old: Option<&Linear>) -> Linear {
    let Some(old) = old else { return rest_in(reg, value) };
    let same = value.lanes == old.lanes && value.symbol() == old.symbol();
    if same && !value.divergent && !old.divergent {
        return rest_in(reg, value);
    }
    let symbol = value.symbol().filter(|_| value.symbol() == old.symbol());
    symbol.map_or_else(Linear::unknown, Linear::atom).blurred()
}
