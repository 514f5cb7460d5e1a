//! Comparison, selection, and moves between registers.

use crate::codegen::func::{FuncGen, Gen};
use crate::codegen::types::{clif, int_of_size};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, I8, I32, I128};
use cranelift_codegen::ir::{InstBuilder, Value};
use outboard_ptx::Type;
use outboard_ptx::ir::{BoolOp, CmpOp, Op, Operand, PredOperand};

impl FuncGen<'_, '_> {
    pub(crate) fn select(&mut self, op: &Op) -> Gen {
        match *op {
            Op::Setp { cmp, ty, ftz, ref combine, p, q, ref a, ref b } => {
                if ty.is_packed() {
                    let [low, high] = self.compare_lanes(cmp, ty, ftz, a, b)?;
                    for (dst, truth) in [(p, low), (q, high)] {
                        if let Some(dst) = dst {
                            let truth = self.combined(combine.as_ref(), truth);
                            self.set(dst, truth);
                        }
                    }
                    return Ok(());
                }
                let truth = self.compare_operands(cmp, ty, ftz, a, b)?;
                let direct = self.combined(combine.as_ref(), truth);
                let complement = match q {
                    None => None,
                    Some(_) => {
                        let not = self.b.ins().bxor_imm_s(truth, 1);
                        Some(self.combined(combine.as_ref(), not))
                    }
                };
                if let Some(p) = p {
                    self.set(p, direct);
                }
                if let (Some(q), Some(complement)) = (q, complement) {
                    self.set(q, complement);
                }
            }
            Op::Set { cmp, dst_ty, ty, ftz, ref combine, dst, ref a, ref b } => {
                let truths = if ty.is_packed() {
                    self.compare_lanes(cmp, ty, ftz, a, b)?.to_vec()
                } else {
                    vec![self.compare_operands(cmp, ty, ftz, a, b)?]
                };
                let mut lanes = Vec::new();
                for truth in truths {
                    let truth = self.combined(combine.as_ref(), truth);
                    let lane = dst_ty.lane();
                    // A packed comparison into a plain 32-bit type fills half-words.
                    let bytes = if ty.is_packed() { ty.lane().size() } else { lane.size() };
                    let mask = self.mask_of(truth, bytes);
                    let one = match lane {
                        Type::F32 => Some(u64::from(1f32.to_bits())),
                        Type::F16 => Some(0x3c00),
                        Type::BF16 => Some(0x3f80),
                        _ => None,
                    };
                    lanes.push(match one {
                        Some(one) => self.b.ins().band_imm_u(mask, one as i64),
                        None => mask,
                    });
                }
                let result =
                    if lanes.len() == 2 { self.join(lanes[0], lanes[1]) } else { lanes[0] };
                self.set_extended(dst, result, dst_ty.is_signed());
            }
            Op::Selp { ty, dst, ref a, ref b, ref pred } => {
                let class = self.class(dst, ty);
                let (a, b) = (self.value(a, class), self.value(b, class));
                let pred = self.pred(pred);
                let result = self.choose(pred, a, b);
                self.set(dst, result);
            }
            Op::Slct { ty, cmp_ty, ftz, dst, ref a, ref b, ref c } => {
                let class = self.class(dst, ty);
                let (a, b) = (self.value(a, class), self.value(b, class));
                let truth = if cmp_ty == Type::F32 {
                    let c = self.value(c, F32);
                    let c = self.flush(Type::F32, ftz, c);
                    let zero = self.b.ins().f32const(0.0);
                    self.b.ins().fcmp(FloatCC::GreaterThanOrEqual, c, zero)
                } else {
                    let c = self.value(c, I32);
                    self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, c, 0)
                };
                let result = self.choose(truth, a, b);
                self.set(dst, result);
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    fn combined(&mut self, combine: Option<&(BoolOp, PredOperand)>, truth: Value) -> Value {
        match combine {
            None => truth,
            Some((op, pred)) => {
                let pred = self.pred(pred);
                self.combine(*op, truth, pred)
            }
        }
    }

    fn compare_operands(
        &mut self,
        cmp: CmpOp,
        ty: Type,
        ftz: bool,
        a: &Operand,
        b: &Operand,
    ) -> Gen<Value> {
        let (a, b) = (self.value(a, clif(ty)), self.value(b, clif(ty)));
        self.compare(cmp, ty, ftz, a, b)
    }

    fn compare_lanes(
        &mut self,
        cmp: CmpOp,
        ty: Type,
        ftz: bool,
        a: &Operand,
        b: &Operand,
    ) -> Gen<[Value; 2]> {
        let (whole, half) = (int_of_size(ty.size()), int_of_size(ty.lane().size()));
        let (a, b) = (self.value(a, whole), self.value(b, whole));
        let ((a0, a1), (b0, b1)) = (self.halves(a, half), self.halves(b, half));
        let mut truths = [a0; 2];
        for (truth, (a, b)) in truths.iter_mut().zip([(a0, b0), (a1, b1)]) {
            let (a, b) = (self.cast(a, clif(ty.lane())), self.cast(b, clif(ty.lane())));
            *truth = self.compare(cmp, ty.lane(), ftz, a, b)?;
        }
        Ok(truths)
    }

    fn compare(&mut self, cmp: CmpOp, ty: Type, ftz: bool, a: Value, b: Value) -> Gen<Value> {
        if ty.is_float() {
            let (a, b) = (self.flush(ty, ftz, a), self.flush(ty, ftz, b));
            let (a, b) = (self.widen(ty, a), self.widen(ty, b));
            let cc = match cmp {
                CmpOp::Eq => FloatCC::Equal,
                CmpOp::Ne => FloatCC::OrderedNotEqual,
                CmpOp::Lt => FloatCC::LessThan,
                CmpOp::Le => FloatCC::LessThanOrEqual,
                CmpOp::Gt => FloatCC::GreaterThan,
                CmpOp::Ge => FloatCC::GreaterThanOrEqual,
                CmpOp::Equ => FloatCC::UnorderedOrEqual,
                CmpOp::Neu => FloatCC::NotEqual,
                CmpOp::Ltu => FloatCC::UnorderedOrLessThan,
                CmpOp::Leu => FloatCC::UnorderedOrLessThanOrEqual,
                CmpOp::Gtu => FloatCC::UnorderedOrGreaterThan,
                CmpOp::Geu => FloatCC::UnorderedOrGreaterThanOrEqual,
                CmpOp::Num => FloatCC::Ordered,
                CmpOp::Nan => FloatCC::Unordered,
            };
            return Ok(self.b.ins().fcmp(cc, a, b));
        }
        let cc = match (cmp, ty.is_signed()) {
            (CmpOp::Eq | CmpOp::Equ, _) => IntCC::Equal,
            (CmpOp::Ne | CmpOp::Neu, _) => IntCC::NotEqual,
            (CmpOp::Lt, true) => IntCC::SignedLessThan,
            (CmpOp::Le, true) => IntCC::SignedLessThanOrEqual,
            (CmpOp::Gt, true) => IntCC::SignedGreaterThan,
            (CmpOp::Ge, true) => IntCC::SignedGreaterThanOrEqual,
            (CmpOp::Lt, false) => IntCC::UnsignedLessThan,
            (CmpOp::Le, false) => IntCC::UnsignedLessThanOrEqual,
            (CmpOp::Gt, false) => IntCC::UnsignedGreaterThan,
            (CmpOp::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
            _ => return Err(format!("comparison {cmp:?} of {ty}").into()),
        };
        Ok(self.b.ins().icmp(cc, a, b))
    }

    pub(crate) fn movement(&mut self, op: &Op) -> Gen {
        match op {
            Op::Mov { ty, dst, a } => {
                let class = if *ty == Type::Pred { I8 } else { self.class(*dst, *ty) };
                let value = self.value(a, class);
                self.set(*dst, value);
            }
            Op::Pack { ty, dst, parts } => {
                let part = int_of_size(ty.size() / parts.len().max(1) as u32);
                let mut values: Vec<Value> = parts.iter().map(|p| self.value(p, part)).collect();
                while values.len() > 1 {
                    values = values
                        .chunks(2)
                        .map(|pair| self.join(pair[0], pair[pair.len() - 1]))
                        .collect();
                }
                if let [value] = values[..] {
                    self.set(*dst, value);
                }
            }
            Op::Unpack { ty, parts, a } => {
                let whole = int_of_size(ty.size());
                let part = int_of_size(ty.size() / parts.len().max(1) as u32);
                let value = self.value(a, whole);
                for (i, dst) in parts.iter().enumerate() {
                    let Some(dst) = dst else { continue };
                    let shift = i as u32 * part.bits();
                    let shifted = match (shift, whole) {
                        (0, _) => value,
                        (_, I128) => {
                            let (low, high) = self.b.ins().isplit(value);
                            let word = if shift >= 64 { high } else { low };
                            self.b.ins().ushr_imm_u(word, i64::from(shift % 64))
                        }
                        _ => self.b.ins().ushr_imm_u(value, i64::from(shift)),
                    };
                    let low = self.cast(shifted, part);
                    self.set(*dst, low);
                }
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }
}
