//! What each operation does.

use super::convert::{Conversion, pack, pair};
use super::float::{self, lanes};
use super::int::{self, Video};
use super::machine::{Frame, Machine, Next, STACK, little_endian};
use super::world::{Stop, World};
use crate::ir::{
    AtomOp, BarOp, BarRed, BoolOp, CmpOp, FloatBinOp, FloatMods, Inst, MulMode, Op, Operand,
    PredOperand, Reg,
};
use crate::types::{Space, Type};

fn combined(frame: &Frame<'_>, combine: Option<(BoolOp, PredOperand)>, value: bool) -> bool {
    let Some((op, other)) = combine else { return value };
    let other = frame.pred(other);
    match op {
        BoolOp::And => value && other,
        BoolOp::Or => value || other,
        BoolOp::Xor => value != other,
    }
}

/// A comparison of one lane.
fn compare(cmp: CmpOp, ty: Type, ftz: bool, a: u128, b: u128) -> bool {
    if ty.is_float() {
        float::compare(cmp, ty, ftz, a as u64, b as u64)
    } else {
        int::compare(cmp, ty, a, b)
    }
}

/// A value of type `ty` as a register of any width holds it: extended by the type's sign.
fn extended(ty: Type, bits: u128) -> u128 {
    if ty.is_signed() { int::signed(ty, bits) as u128 } else { int::unsigned(ty, bits) }
}

fn word(frame: &Frame<'_>, operand: Operand) -> u32 {
    frame.get(operand) as u32
}

impl<'m, W: World> Machine<'m, '_, W> {
    pub(super) fn step(&mut self, frame: &mut Frame<'m>, inst: &'m Inst) -> Result<Next, Stop> {
        match &inst.op {
            Op::Bra { target } => return Ok(Next::Jump(*target)),
            Op::BrxIdx { index, targets } => {
                let target = targets.get(frame.get(*index) as u32 as usize);
                return target.map(|target| Next::Jump(*target)).ok_or(Stop::Trap(inst.line));
            }
            Op::Ret => return Ok(Next::Return),
            Op::Exit => return Err(Stop::Exit),
            Op::Trap => return Err(Stop::Trap(inst.line)),
            Op::Call { .. } => self.call_inst(frame, inst)?,
            Op::Ld { .. } | Op::St { .. } | Op::Atom { .. } | Op::CpAsync { .. } => {
                self.memory(frame, &inst.op)?
            }
            op if integer(frame, op) || floating(frame, op) || movement(frame, op) => {}
            op => self.rest(frame, op, inst.line)?,
        }
        Ok(Next::Follow)
    }

    fn load(&mut self, addr: u64, ty: Type) -> Result<u128, Stop> {
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..ty.size() as usize];
        self.read(addr, bytes)?;
        Ok(little_endian(bytes))
    }

    fn aligned(addr: u64, size: u32) -> Result<(), Stop> {
        if addr.is_multiple_of(u64::from(size)) { Ok(()) } else { Err(Stop::Fault { addr, size }) }
    }

    fn memory(&mut self, frame: &mut Frame<'m>, op: &Op) -> Result<(), Stop> {
        match op {
            Op::Ld { ty, dsts, addr, .. } => {
                let start = self.address(frame, *addr);
                Self::aligned(start, ty.size() * dsts.len() as u32)?;
                let mut values = Vec::with_capacity(dsts.len());
                for index in 0..dsts.len() as u64 {
                    values.push(self.load(start.wrapping_add(index * u64::from(ty.size())), *ty)?);
                }
                for (dst, value) in dsts.iter().zip(values) {
                    if let Some(dst) = dst {
                        frame.set(*dst, extended(*ty, value));
                    }
                }
            }
            Op::St { ty, srcs, addr, .. } => {
                let start = self.address(frame, *addr);
                Self::aligned(start, ty.size() * srcs.len() as u32)?;
                for (index, src) in srcs.iter().enumerate() {
                    let at = start.wrapping_add(index as u64 * u64::from(ty.size()));
                    self.write(at, &frame.get(*src).to_le_bytes()[..ty.size() as usize])?;
                }
            }
            Op::Atom { op, ty, dst, addr, b, c, .. } => {
                let at = self.address(frame, *addr);
                Self::aligned(at, ty.size())?;
                let old = self.load(at, *ty)?;
                let b = int::unsigned(*ty, frame.get(*b));
                let new = match (op, c) {
                    (AtomOp::Cas, Some(c)) => {
                        if old == b {
                            frame.get(*c)
                        } else {
                            old
                        }
                    }
                    _ => atomic(*op, *ty, old, b),
                };
                self.write(at, &new.to_le_bytes()[..ty.size() as usize])?;
                if let Some(dst) = dst {
                    frame.set(*dst, old);
                }
            }
            Op::CpAsync { bytes, src_bytes, ignore_src, dst, src } => {
                let (to, from) = (self.address(frame, *dst), self.address(frame, *src));
                Self::aligned(to, *bytes)?;
                Self::aligned(from, *bytes)?;
                let ignored = ignore_src.is_some_and(|pred| frame.pred(pred));
                let count = src_bytes.map_or(*bytes, |count| word(frame, count).min(*bytes));
                let count = if ignored { 0 } else { count };
                let mut data = [0u8; 16];
                self.read(from, &mut data[..count as usize])?;
                self.write(to, &data[..*bytes as usize])?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What needs the world or concerns several threads.
    fn rest(&mut self, frame: &mut Frame<'m>, op: &Op, line: u32) -> Result<(), Stop> {
        match op {
            Op::MovSpecial { dst, sreg } => frame.set(*dst, u128::from(self.world.special(*sreg))),
            Op::MovAddr { dst, addr } => frame.set(*dst, u128::from(self.address(frame, *addr))),
            Op::Isspacep { space, dst, a } => {
                let addr = frame.get(*a) as u64;
                let home = if addr >= STACK { Space::Local } else { self.world.space(addr) };
                frame.set(*dst, u128::from(home == *space));
            }
            // A block of one thread passes its barriers.
            Op::Bar { op: BarOp::Red { op, dst, pred }, .. } => {
                let value = frame.pred(*pred);
                let _ = matches!(op, BarRed::Popc);
                frame.set(*dst, u128::from(value));
            }
            Op::Bar { .. }
            | Op::ClusterArrive
            | Op::ClusterWait
            | Op::WarpSync { .. }
            | Op::Fence { .. }
            | Op::NanoSleep { .. }
            | Op::Brkpt => {}
            Op::ActiveMask { dst } => frame.set(*dst, 1),
            _ => return Err(Stop::NotScalar { line, what: "this instruction".into() }),
        }
        Ok(())
    }
}

/// Integer operations; false if `op` is not one.
fn integer(frame: &mut Frame<'_>, op: &Op) -> bool {
    let (dst, value): (Reg, u128) = match *op {
        Op::IntBin { op, ty, sat, dst, a, b } => {
            let (a, b) = (frame.get(a), frame.get(b));
            let value = match ty.is_packed() {
                true => lanes(ty, [a, b], |[a, b]| {
                    int::binary(op, ty.lane(), sat, u128::from(a), u128::from(b)) as u64 & 0xffff
                }),
                false => int::binary(op, ty, sat, a, b),
            };
            (dst, value)
        }
        Op::IntUn { op, ty, dst, a } => (dst, int::unary(op, ty, frame.get(a))),
        Op::Shift { op, ty, dst, a, b } => (dst, int::shift(op, ty, frame.get(a), frame.get(b))),
        Op::MulWide { ty, dst, a, b } => {
            (dst, int::mul(MulMode::Wide, ty, frame.get(a), frame.get(b)))
        }
        Op::Mad { mode, ty, sat, dst, a, b, c } => {
            (dst, int::mad(mode, ty, sat, frame.get(a), frame.get(b), frame.get(c)))
        }
        Op::Mul24 { hi, ty, dst, a, b } => (dst, int::mul24(hi, ty, frame.get(a), frame.get(b))),
        Op::Mad24 { hi, ty, sat, dst, a, b, c } => {
            let product = int::mul24(hi, ty, frame.get(a), frame.get(b));
            (dst, int::binary(crate::ir::IntBinOp::Add, ty, sat, product, frame.get(c)))
        }
        Op::AddCarry { sub, ty, carry_in, carry_out, dst, a, b } => {
            // A subtraction adds the complement, so its flag says that nothing was borrowed.
            let carry = carry_in && frame.carry != sub;
            let (value, out) = int::add_carry(sub, ty, carry, frame.get(a), frame.get(b));
            if carry_out {
                frame.carry = out != sub;
            }
            (dst, value)
        }
        Op::MadCarry { mode, ty, carry_in, carry_out, dst, a, b, c } => {
            let product = int::mul(mode, ty, frame.get(a), frame.get(b));
            let (value, out) =
                int::add_carry(false, ty, carry_in && frame.carry, product, frame.get(c));
            if carry_out {
                frame.carry = out;
            }
            (dst, value)
        }
        Op::Sad { ty, dst, a, b, c } => {
            (dst, int::sad(ty, frame.get(a), frame.get(b), frame.get(c)))
        }
        Op::Bfind { ty, shiftamt, dst, a } => (dst, int::bfind(ty, shiftamt, frame.get(a))),
        Op::Fns { dst, mask, base, offset } => {
            (dst, int::fns(word(frame, mask), word(frame, base), word(frame, offset) as i32).into())
        }
        Op::Bfe { ty, dst, a, pos, len } => {
            (dst, int::bfe(ty, frame.get(a), frame.get(pos), frame.get(len)))
        }
        Op::Bfi { ty, dst, a, b, pos, len } => {
            (dst, int::bfi(ty, frame.get(a), frame.get(b), frame.get(pos), frame.get(len)))
        }
        Op::Bmsk { mode, dst, a, b } => {
            (dst, int::bmsk(mode, word(frame, a), word(frame, b)).into())
        }
        Op::Szext { mode, ty, dst, a, b } => {
            (dst, int::szext(mode, ty.is_signed(), word(frame, a), word(frame, b)).into())
        }
        Op::Shf { left, mode, dst, a, b, c } => {
            (dst, int::funnel(left, mode, word(frame, a), word(frame, b), word(frame, c)).into())
        }
        Op::Prmt { mode, dst, a, b, c } => {
            (dst, int::prmt(mode, word(frame, a), word(frame, b), word(frame, c)).into())
        }
        Op::Lop3 { lut, dst, a, b, c, pred } => {
            let value = int::lop3(lut, word(frame, a), word(frame, b), word(frame, c));
            if let Some((p, op, q)) = pred {
                let result = combined(frame, Some((op, q)), value != 0);
                frame.set_pred(Some(p), result);
            }
            let Some(dst) = dst else { return true };
            (dst, value.into())
        }
        Op::Dp4a { a_signed, b_signed, dst, a, b, c } => (
            dst,
            int::dot(8, false, a_signed, b_signed, word(frame, a), word(frame, b), word(frame, c))
                .into(),
        ),
        Op::Dp2a { hi, a_signed, b_signed, dst, a, b, c } => (
            dst,
            int::dot(16, hi, a_signed, b_signed, word(frame, a), word(frame, b), word(frame, c))
                .into(),
        ),
        Op::Video {
            op,
            lanes,
            d_signed,
            a_signed,
            b_signed,
            sat,
            accumulate,
            mask,
            a_sel,
            b_sel,
            dst,
            a,
            b,
            c,
        } => {
            let video = Video {
                op,
                lanes,
                d_signed,
                a_signed,
                b_signed,
                sat,
                accumulate,
                mask,
                a_sel,
                b_sel,
            };
            (dst, video.apply(word(frame, a), word(frame, b), word(frame, c)).into())
        }
        _ => return false,
    };
    frame.set(dst, value);
    true
}

/// Floating-point operations and comparisons; false if `op` is not one.
fn floating(frame: &mut Frame<'_>, op: &Op) -> bool {
    let (dst, value): (Reg, u128) = match *op {
        Op::FloatBin { op, ty, mods, dst, a, b } => {
            let inputs = [frame.get(a), frame.get(b)];
            (dst, lanes(ty, inputs, |[a, b]| float::binary(op, ty.lane(), mods, a, b)))
        }
        Op::FloatUn { op, ty, mods, dst, a } => {
            (dst, lanes(ty, [frame.get(a)], |[a]| float::unary(op, ty.lane(), mods, a)))
        }
        Op::Fma { ty, mods, dst, a, b, c } => {
            let inputs = [frame.get(a), frame.get(b), frame.get(c)];
            (dst, lanes(ty, inputs, |[a, b, c]| float::fma(ty.lane(), mods, a, b, c)))
        }
        Op::Copysign { ty, dst, a, b } => {
            (dst, float::copysign(ty, frame.get(a) as u64, frame.get(b) as u64).into())
        }
        Op::Testp { op, ty, dst, a } => (dst, float::testp(op, ty, frame.get(a) as u64).into()),
        Op::Setp { cmp, ty, ftz, combine, p, q, a, b } => {
            let (a, b) = (frame.get(a), frame.get(b));
            let low = compare(cmp, ty.lane(), ftz, lane(ty, a, 0), lane(ty, b, 0));
            let other = match ty.is_packed() {
                true => compare(cmp, ty.lane(), ftz, lane(ty, a, 1), lane(ty, b, 1)),
                false => !low,
            };
            let (low, other) = (combined(frame, combine, low), combined(frame, combine, other));
            frame.set_pred(p, low);
            frame.set_pred(q, other);
            return true;
        }
        Op::Set { cmp, dst_ty, ty, ftz, combine, dst, a, b } => {
            let (a, b) = (frame.get(a), frame.get(b));
            let count = ty.bits() / ty.lane().bits();
            // Packed comparisons give a half-word for each lane.
            let width = if ty.is_packed() { 16 } else { dst_ty.bits() };
            let yes = truth(dst_ty, width);
            let value = (0..count).fold(0, |all, index| {
                let holds = compare(cmp, ty.lane(), ftz, lane(ty, a, index), lane(ty, b, index));
                if combined(frame, combine, holds) { all | yes << (index * width) } else { all }
            });
            (dst, value)
        }
        _ => return false,
    };
    frame.set(dst, value);
    true
}

/// Lane `index` of a packed value, or the value itself.
fn lane(ty: Type, bits: u128, index: u32) -> u128 {
    int::unsigned(ty.lane(), bits >> (index * ty.lane().bits()))
}

/// What `set` writes for true.
fn truth(ty: Type, width: u32) -> u128 {
    match ty.lane() {
        Type::F16 => 0x3c00,
        Type::BF16 => 0x3f80,
        Type::F32 => 0x3f80_0000,
        _ => (1 << width) - 1,
    }
}

/// Moves, selections and conversions; false if `op` is none.
fn movement(frame: &mut Frame<'_>, op: &Op) -> bool {
    let (dst, value): (Reg, u128) = match op {
        Op::Selp { dst, a, b, pred, .. } => {
            let chosen = if frame.pred(*pred) { *a } else { *b };
            (*dst, frame.get(chosen))
        }
        Op::Slct { cmp_ty, ftz, dst, a, b, c, .. } => {
            let c = frame.get(*c);
            (*dst, frame.get(if compare(CmpOp::Ge, *cmp_ty, *ftz, c, 0) { *a } else { *b }))
        }
        Op::Mov { dst, a, .. } => (*dst, frame.get(*a)),
        Op::Cvta { dst, a, .. } => (*dst, frame.get(*a)),
        Op::Pack { ty, dst, parts } => {
            let width = ty.bits() / parts.len() as u32;
            let mask = (1u128 << width) - 1;
            let value =
                parts.iter().rev().fold(0, |all, part| all << width | (frame.get(*part) & mask));
            (*dst, value)
        }
        Op::Unpack { ty, parts, a } => {
            let width = ty.bits() / parts.len() as u32;
            let whole = frame.get(*a);
            for (index, part) in parts.iter().enumerate() {
                if let Some(part) = part {
                    frame.set(*part, whole >> (index as u32 * width) & ((1 << width) - 1));
                }
            }
            return true;
        }
        Op::Cvt { dst_ty, src_ty, round, int_round, ftz, sat, satfinite, relu, dst, a } => {
            let conversion = Conversion {
                dst_ty: *dst_ty,
                src_ty: *src_ty,
                round: *round,
                int_round: *int_round,
                ftz: *ftz,
                sat: *sat,
                satfinite: *satfinite,
                relu: *relu,
            };
            let source = int::unsigned(*src_ty, frame.get(*a));
            (*dst, extended(*dst_ty, conversion.apply(source)))
        }
        Op::CvtPair { dst_ty, round, satfinite, relu, dst, a, b } => {
            let (a, b) = (frame.get(*a) as u64, frame.get(*b) as u64);
            (*dst, pair(*dst_ty, *round, *satfinite, *relu, a, b))
        }
        Op::CvtPack { dst_ty, src_ty, dst, a, b, c } => {
            let c = c.map(|c| frame.get(c));
            (*dst, pack(*dst_ty, *src_ty, frame.get(*a), frame.get(*b), c))
        }
        _ => return false,
    };
    frame.set(dst, value);
    true
}

/// The new value of an atomic operation other than compare-and-swap.
fn atomic(op: AtomOp, ty: Type, old: u128, b: u128) -> u128 {
    let arithmetic = |int_op, float_op| match ty.is_float() {
        true => lanes(ty, [old, b], |[old, b]| {
            float::binary(float_op, ty.lane(), FloatMods::DEFAULT, old, b)
        }),
        false => int::unsigned(ty, int::binary(int_op, ty, false, old, b)),
    };
    match op {
        AtomOp::And => old & b,
        AtomOp::Or => old | b,
        AtomOp::Xor => old ^ b,
        AtomOp::Exch | AtomOp::Cas => b,
        AtomOp::Add => arithmetic(crate::ir::IntBinOp::Add, FloatBinOp::Add),
        AtomOp::Min => arithmetic(crate::ir::IntBinOp::Min, FloatBinOp::Min),
        AtomOp::Max => arithmetic(crate::ir::IntBinOp::Max, FloatBinOp::Max),
        AtomOp::Inc => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomOp::Dec => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}
