//! Conversions between types.

use crate::codegen::func::{FuncGen, Gen};
use crate::codegen::types::{clif, format, int_of_size};
use crate::rt::convert;
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use outboard_ptx::Type;
use outboard_ptx::ir::{Op, Operand, Round};

/// A conversion without its operands.
#[derive(Clone, Copy)]
struct Rule {
    dst: Type,
    src: Type,
    round: Round,
    int_round: Option<Round>,
    ftz: bool,
    sat: bool,
    satfinite: bool,
    relu: bool,
}

impl FuncGen<'_, '_> {
    pub(crate) fn convert(&mut self, op: &Op) -> Gen {
        match *op {
            Op::Cvt { dst_ty, src_ty, round, int_round, ftz, sat, satfinite, relu, dst, ref a } => {
                let round = round.unwrap_or(Round::NearestEven);
                let rule =
                    Rule { dst: dst_ty, src: src_ty, round, int_round, ftz, sat, satfinite, relu };
                let mut value = self.value(a, clif(src_ty));
                if src_ty == Type::F32 && dst_ty.is_float() && self.is_computed(a) {
                    value = self.canonical(value);
                }
                let result = self.convert_value(rule, value)?;
                self.set_extended(dst, result, dst_ty.is_signed());
            }
            Op::CvtPair { dst_ty, round, satfinite, relu, dst, ref a, ref b } => {
                let (high, low) = (self.value(a, F32), self.value(b, F32));
                let result = self.convert_pair(dst_ty, round, satfinite, relu, low, high)?;
                self.set(dst, result);
            }
            Op::CvtPack { dst_ty, src_ty, dst, ref a, ref b, ref c } => {
                self.convert_pack(dst_ty, src_ty, dst, a, b, c.as_ref())?;
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    fn convert_value(&mut self, rule: Rule, value: Value) -> Gen<Value> {
        let Rule { dst, src, .. } = rule;
        if matches!(src, Type::E4m3x2 | Type::E5m2x2) {
            let (low, high) = self.halves(value, I8);
            let function =
                if src == Type::E4m3x2 { convert::e4m3_to_f32 } else { convert::e5m2_to_f32 };
            let mut halves = [low, high];
            for half in &mut halves {
                let byte = self.cast(*half, I32);
                let single = self.rt_value(function as *const () as usize, F32, &[byte]);
                let result = self.single_to_half(single);
                *half = if rule.relu { self.relu(Type::F16, result) } else { result };
            }
            return Ok(self.join(halves[0], halves[1]));
        }
        if matches!(dst, Type::E4m3x2 | Type::E5m2x2) {
            let (low, high) = self.halves(value, I16);
            let lane = src.lane();
            let (low, high) = (self.single(lane, low), self.single(lane, high));
            return self.convert_pair(dst, rule.round, true, rule.relu, low, high);
        }
        if dst.is_packed() || src.is_packed() {
            return Err(format!("cvt{dst}{src}").into());
        }
        match (dst.is_float(), src.is_float()) {
            (true, true) => self.float_to_float(rule, value),
            (false, true) => Ok(self.float_to_int(rule, value)),
            (true, false) => Ok(self.int_to_float(rule, value)),
            (false, false) => Ok(self.int_to_int(rule, value)),
        }
    }

    fn int_to_int(&mut self, rule: Rule, value: Value) -> Value {
        let Rule { dst, src, sat, .. } = rule;
        if !sat {
            let wide = self.extend(src, value, int_of_size(src.size().max(dst.size())));
            return self.cast(wide, int_of_size(dst.size()));
        }
        // Clamped in 64 bits; only u64 and s64 need care, since one does not hold the other.
        let wide = self.extend(src, value, I64);
        let wide = match (src, dst) {
            (Type::U64, _) => {
                let most = self.iconst(I64, greatest(dst));
                self.b.ins().umin(wide, most)
            }
            (_, Type::U64) => {
                let zero = self.iconst(I64, 0);
                if src.is_signed() { self.b.ins().smax(wide, zero) } else { wide }
            }
            _ => {
                let (least, most) =
                    (self.iconst(I64, least(dst) as u64), self.iconst(I64, greatest(dst)));
                let clamped = self.b.ins().smax(wide, least);
                self.b.ins().smin(clamped, most)
            }
        };
        self.cast(wide, int_of_size(dst.size()))
    }

    fn int_to_float(&mut self, rule: Rule, value: Value) -> Value {
        let Rule { dst, src, round, .. } = rule;
        let native = matches!(dst, Type::F32 | Type::F64)
            && (round == Round::NearestEven || exact(src, dst));
        let result = if native {
            let wide = self.extend(src, value, if src.size() == 8 { I64 } else { I32 });
            if src.is_signed() {
                self.b.ins().fcvt_from_sint(clif(dst), wide)
            } else {
                self.b.ins().fcvt_from_uint(clif(dst), wide)
            }
        } else {
            let wide = self.extend(src, value, I64);
            let code = self.iconst(I32, convert::describe(format(dst), round).into());
            let function = if src.is_signed() {
                convert::from_s64 as *const () as usize
            } else {
                convert::from_u64 as *const () as usize
            };
            let bits = self.rt_value(function, I64, &[code, wide]);
            self.cast(bits, clif(dst))
        };
        if rule.sat { self.saturate(dst, result) } else { result }
    }

    fn float_to_int(&mut self, rule: Rule, value: Value) -> Value {
        let Rule { dst, src, .. } = rule;
        let value = self.flush(src, rule.ftz, value);
        let value = match src {
            Type::F64 => value,
            _ => self.single(src, value),
        };
        let whole = self.integral(rule.int_round.unwrap_or(Round::Zero), value);
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, whole, whole);
        let class = if dst.size() == 8 { I64 } else { I32 };
        let converted = if dst.is_signed() {
            self.b.ins().fcvt_to_sint_sat(class, whole)
        } else {
            self.b.ins().fcvt_to_uint_sat(class, whole)
        };
        // Not a number becomes 0 only from the narrow types to at most 32 bits: else only the top
        // bit is set.
        let nan = self.iconst(int_of_size(dst.size()), 1 << (dst.bits() - 1));
        let result = match dst.size() {
            8 | 4 => converted,
            _ => {
                let (least, most) =
                    (self.iconst(I32, least(dst) as u64), self.iconst(I32, greatest(dst)));
                let clamped = if dst.is_signed() {
                    let up = self.b.ins().smax(converted, least);
                    self.b.ins().smin(up, most)
                } else {
                    self.b.ins().umin(converted, most)
                };
                self.cast(clamped, int_of_size(dst.size()))
            }
        };
        if src == Type::F64 || dst.size() == 8 { self.choose(is_nan, nan, result) } else { result }
    }

    fn integral(&mut self, round: Round, value: Value) -> Value {
        match round {
            Round::NearestEven => self.b.ins().nearest(value),
            Round::Down => self.b.ins().floor(value),
            Round::Up => self.b.ins().ceil(value),
            _ => self.b.ins().trunc(value),
        }
    }

    fn float_to_float(&mut self, rule: Rule, value: Value) -> Gen<Value> {
        let Rule { dst, src, round, .. } = rule;
        // Only subnormals of `f32` are flushed.
        let value = if src == Type::F32 { self.flush(src, rule.ftz, value) } else { value };
        let value = match rule.int_round {
            None => value,
            Some(int_round) => {
                let wide = self.widen(src, value);
                let whole = self.integral(int_round, wide);
                self.narrow(src, whole)
            }
        };
        let mut result = match (src, dst) {
            _ if src == dst => value,
            (Type::F32, Type::F64) => self.b.ins().fpromote(F64, value),
            (Type::F64, Type::F32) if round == Round::NearestEven => {
                self.b.ins().fdemote(F32, value)
            }
            (Type::F16, Type::F32) => self.half_to_single(value),
            (Type::BF16, Type::F32) => self.bfloat_to_single(value),
            (Type::F16 | Type::BF16, Type::F64) => {
                let single = self.single(src, value);
                self.b.ins().fpromote(F64, single)
            }
            (Type::F32, Type::F16) if round == Round::NearestEven => self.single_to_half(value),
            _ => {
                let bits = self.bits64(value);
                let code = self
                    .iconst(I32, convert::describe_convert(format(src), format(dst), round).into());
                let bits =
                    self.rt_value(convert::convert as *const () as usize, I64, &[code, bits]);
                if dst == Type::Tf32 {
                    // Its 19 bits stand at the top of the word.
                    let bits = self.b.ins().ishl_imm_u(bits, 13);
                    self.cast(bits, I32)
                } else {
                    self.cast(bits, clif(dst))
                }
            }
        };
        if rule.satfinite && dst != Type::Tf32 {
            result = self.saturate_finite(dst, result);
        }
        if rule.sat {
            result = self.saturate(dst, result);
        }
        if rule.relu {
            result = if dst == Type::Tf32 {
                let single = self.cast(result, F32);
                let positive = self.relu(Type::F32, single);
                self.cast(positive, I32)
            } else {
                self.relu(dst, result)
            };
        }
        Ok(if dst == Type::F32 { self.flush(dst, rule.ftz, result) } else { result })
    }

    /// A value of a type no wider than `f32` as `f32`.
    fn single(&mut self, ty: Type, value: Value) -> Value {
        match ty {
            Type::F16 => self.half_to_single(value),
            Type::BF16 => self.bfloat_to_single(value),
            _ => self.cast(value, F32),
        }
    }

    fn saturate_finite(&mut self, ty: Type, value: Value) -> Value {
        let bits = self.bits64(value);
        let code = self.iconst(I32, convert::describe(format(ty), Round::NearestEven).into());
        let bits = self.rt_value(convert::saturate as *const () as usize, I64, &[code, bits]);
        self.cast(bits, clif(ty))
    }

    fn convert_pair(
        &mut self,
        dst: Type,
        round: Round,
        satfinite: bool,
        relu: bool,
        low: Value,
        high: Value,
    ) -> Gen<Value> {
        let mut lanes = [low, high];
        for lane in &mut lanes {
            let value = if relu { self.relu(Type::F32, *lane) } else { *lane };
            *lane = match dst {
                Type::F16x2 | Type::BF16x2 => {
                    let rule = Rule {
                        dst: dst.lane(),
                        src: Type::F32,
                        round,
                        int_round: None,
                        ftz: false,
                        sat: false,
                        satfinite,
                        relu: false,
                    };
                    self.float_to_float(rule, value)?
                }
                Type::E4m3x2 | Type::E5m2x2 => {
                    let function = if dst == Type::E4m3x2 {
                        convert::f32_to_e4m3
                    } else {
                        convert::f32_to_e5m2
                    };
                    let byte = self.rt_value(function as *const () as usize, I32, &[value]);
                    self.b.ins().ireduce(I8, byte)
                }
                _ => return Err(format!("cvt{dst}.f32").into()),
            };
        }
        Ok(self.join(lanes[0], lanes[1]))
    }

    fn convert_pack(
        &mut self,
        dst_ty: Type,
        src_ty: Type,
        dst: outboard_ptx::ir::Reg,
        a: &Operand,
        b: &Operand,
        c: Option<&Operand>,
    ) -> Gen {
        let bits = dst_ty.bits();
        let mut result = match c {
            Some(c) if bits <= 8 => {
                let c = self.value(c, I32);
                self.b.ins().ishl_imm_u(c, i64::from(2 * bits))
            }
            _ => self.iconst(I32, 0),
        };
        for (operand, place) in [(b, 0), (a, bits)] {
            let value = self.value(operand, int_of_size(src_ty.size()));
            let rule = Rule {
                dst: dst_ty,
                src: src_ty,
                round: Round::NearestEven,
                int_round: None,
                ftz: false,
                sat: true,
                satfinite: false,
                relu: false,
            };
            let narrow = self.int_to_int(rule, value);
            let narrow = self.cast(narrow, I32);
            let placed = self.b.ins().ishl_imm_u(narrow, i64::from(place));
            result = self.b.ins().bor(result, placed);
        }
        self.set(dst, result);
        Ok(())
    }
}

/// Whether every integer of `src` is a number of `dst`.
fn exact(src: Type, dst: Type) -> bool {
    src.size() <= if dst == Type::F64 { 4 } else { 2 }
}

fn greatest(ty: Type) -> u64 {
    let all = if ty.bits() == 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
    if ty.is_signed() { all >> 1 } else { all }
}

fn least(ty: Type) -> i64 {
    if ty.is_signed() { -1 << (ty.bits() - 1) } else { 0 }
}
