//! Floating-point arithmetic.
//!
//! Rounding to nearest of `f32` and `f64` is the processor's; other modes go to the soft-float
//! core. The 16-bit types are computed in a wider type and rounded once: in `f32` for half
//! precision and `f64` for bfloat16, which have more than twice the digits plus two and, for
//! bfloat16, exponents to spare, so that the second rounding does no harm; fused operations have
//! functions of their own.

mod formats;

use crate::codegen::func::{FuncGen, Gen};
use crate::codegen::types::{clif, format, int_of_size};
use crate::math::approx;
use crate::math::soft::{Binary, Format};
use crate::rt::convert;
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::types::{F32, F64, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use outboard_ptx::Type;
use outboard_ptx::ir::{FloatBinOp, FloatMods, FloatUnOp, Op, Operand, Reg, Round, TestpOp};

impl FuncGen<'_, '_> {
    pub(crate) fn float(&mut self, op: &Op) -> Gen {
        match *op {
            Op::FloatBin { op, ty, mods, dst, ref a, ref b } => {
                let result = self.lanewise(ty, &[a, b], |this, ty, v| {
                    this.float_binary(op, ty, mods, v[0], v[1])
                })?;
                self.set_computed(dst, ty, result);
            }
            Op::FloatUn { op, ty, mods, dst, ref a } => {
                let result =
                    self.lanewise(ty, &[a], |this, ty, v| this.float_unary(op, ty, mods, v[0]))?;
                self.set_computed(dst, ty, result);
            }
            Op::Fma { ty, mods, dst, ref a, ref b, ref c } => {
                let result = self.lanewise(ty, &[a, b, c], |this, ty, v| {
                    this.float_fma(ty, mods, v[0], v[1], v[2])
                })?;
                self.set_computed(dst, ty, result);
            }
            Op::Copysign { ty, dst, ref a, ref b } => {
                let class = clif(ty);
                let (sign, magnitude) = (self.value(a, class), self.value(b, class));
                let result = self.b.ins().fcopysign(magnitude, sign);
                self.set(dst, result);
            }
            Op::Testp { op, ty, dst, ref a } => {
                let value = self.value(a, clif(ty));
                let result = self.test_property(op, value);
                self.set(dst, result);
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    /// Writes the result of arithmetic. The one NaN of `f32` arithmetic is `0x7fffffff`, where the
    /// processor has others; values in floating-point registers are brought to it only when their
    /// bits are looked at, see [`Self::canonical`].
    fn set_computed(&mut self, dst: Reg, ty: Type, value: Value) {
        let value =
            if ty == Type::F32 && !self.holds_float(dst) { self.canonical(value) } else { value };
        self.set(dst, value);
    }

    /// An `f32` value with the bits that hardware would show: any NaN as the canonical one.
    pub(crate) fn canonical(&mut self, value: Value) -> Value {
        let bits = self.b.ins().bitcast(I32, MemFlagsData::new(), value);
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let nan = self.iconst(I32, Format::F32.nan);
        let bits = self.choose(is_nan, nan, bits);
        self.b.ins().bitcast(F32, MemFlagsData::new(), bits)
    }

    /// Applies `f` to scalar values, or to each lane of packed ones.
    pub(crate) fn lanewise(
        &mut self,
        ty: Type,
        operands: &[&Operand],
        f: impl Fn(&mut Self, Type, &[Value]) -> Gen<Value>,
    ) -> Gen<Value> {
        if !ty.is_packed() {
            let values: Vec<Value> =
                operands.iter().map(|operand| self.value(operand, clif(ty))).collect();
            return f(self, ty, &values);
        }
        let (lane, half) = (ty.lane(), int_of_size(ty.lane().size()));
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for operand in operands {
            let whole = self.value(operand, int_of_size(ty.size()));
            let (l, h) = self.halves(whole, half);
            low.push(self.cast(l, clif(lane)));
            high.push(self.cast(h, clif(lane)));
        }
        let (low, high) = (f(self, lane, &low)?, f(self, lane, &high)?);
        let (low, high) = (self.as_int(low), self.as_int(high));
        Ok(self.join(low, high))
    }

    fn float_binary(
        &mut self,
        op: FloatBinOp,
        ty: Type,
        mods: FloatMods,
        a: Value,
        b: Value,
    ) -> Gen<Value> {
        let (a, b) = (self.flush_input(ty, mods, a), self.flush_input(ty, mods, b));
        if matches!(op, FloatBinOp::Min | FloatBinOp::Max) {
            return Ok(self.min_max(op == FloatBinOp::Max, ty, mods, a, b));
        }
        let nearest = mods.round == Round::NearestEven
            || matches!(op, FloatBinOp::DivApprox | FloatBinOp::DivFull);
        let result = if !nearest {
            let op = match op {
                FloatBinOp::Add => Binary::Add,
                FloatBinOp::Sub => Binary::Sub,
                FloatBinOp::Mul => Binary::Mul,
                _ => Binary::Div,
            };
            let code =
                self.iconst(I32, convert::describe_binary(format(ty), op, mods.round).into());
            let (a, b) = (self.bits64(a), self.bits64(b));
            let bits = self.rt_value(convert::binary as *const () as usize, I64, &[code, a, b]);
            self.cast(bits, clif(ty))
        } else {
            let (a, b) = (self.widen(ty, a), self.widen(ty, b));
            let wide = match op {
                FloatBinOp::Add => self.b.ins().fadd(a, b),
                FloatBinOp::Sub => self.b.ins().fsub(a, b),
                FloatBinOp::Mul => self.b.ins().fmul(a, b),
                _ => self.b.ins().fdiv(a, b),
            };
            self.narrow(ty, wide)
        };
        Ok(self.finish(ty, mods, result))
    }

    fn float_unary(&mut self, op: FloatUnOp, ty: Type, mods: FloatMods, a: Value) -> Gen<Value> {
        if matches!(op, FloatUnOp::Neg | FloatUnOp::Abs) {
            let a = self.flush_input(ty, mods, a);
            return Ok(match (op, ty) {
                (FloatUnOp::Neg, Type::F32 | Type::F64) => self.b.ins().fneg(a),
                (_, Type::F32 | Type::F64) => self.b.ins().fabs(a),
                (FloatUnOp::Neg, _) => self.b.ins().bxor_imm_u(a, 0x8000),
                _ => self.b.ins().band_imm_u(a, 0x7fff),
            });
        }
        let a = self.flush_input(ty, mods, a);
        let exact = match op {
            FloatUnOp::Rcp => Some(Binary::Div),
            FloatUnOp::Sqrt => Some(Binary::Add),
            _ => None,
        };
        let result = match exact {
            Some(kind) if mods.round != Round::NearestEven => {
                let bits = self.bits64(a);
                let result = if kind == Binary::Div {
                    let one = if ty == Type::F64 { 1f64.to_bits() } else { 1f32.to_bits().into() };
                    let one = self.iconst(I64, one);
                    let code = self
                        .iconst(I32, convert::describe_binary(format(ty), kind, mods.round).into());
                    self.rt_value(convert::binary as *const () as usize, I64, &[code, one, bits])
                } else {
                    let code = self.iconst(I32, convert::describe(format(ty), mods.round).into());
                    self.rt_value(convert::sqrt as *const () as usize, I64, &[code, bits])
                };
                self.cast(result, clif(ty))
            }
            _ => {
                let wide = self.widen(ty, a);
                let wide = self.approximate(op, wide)?;
                self.narrow(ty, wide)
            }
        };
        Ok(self.finish(ty, mods, result))
    }

    fn approximate(&mut self, op: FloatUnOp, a: Value) -> Gen<Value> {
        let ty = self.b.func.dfg.value_type(a);
        let single = match op {
            FloatUnOp::Rcp | FloatUnOp::RcpApprox => {
                let one =
                    if ty == F64 { self.b.ins().f64const(1.0) } else { self.b.ins().f32const(1.0) };
                return Ok(self.b.ins().fdiv(one, a));
            }
            FloatUnOp::Sqrt | FloatUnOp::SqrtApprox => return Ok(self.b.ins().sqrt(a)),
            FloatUnOp::RsqrtApprox if ty == F64 => {
                return Ok(self.rt_value(approx::rsqrt_f64 as *const () as usize, F64, &[a]));
            }
            FloatUnOp::RsqrtApprox => {
                // The square root in double precision loses nothing that one rounding at the end
                // would show.
                let wide = self.b.ins().fpromote(F64, a);
                let (root, one) = (self.b.ins().sqrt(wide), self.b.ins().f64const(1.0));
                let result = self.b.ins().fdiv(one, root);
                return Ok(self.b.ins().fdemote(F32, result));
            }
            FloatUnOp::SinApprox => approx::sin,
            FloatUnOp::CosApprox => approx::cos,
            FloatUnOp::Ex2Approx => approx::ex2,
            FloatUnOp::Lg2Approx => approx::lg2,
            FloatUnOp::TanhApprox => approx::tanh,
            FloatUnOp::Neg | FloatUnOp::Abs => return Err(format!("{op:?}").into()),
        };
        // Of the approximate functions only these come in other types than f32, and then in 16-bit
        // ones, whose values f32 holds.
        let narrow = if ty == F64 { self.b.ins().fdemote(F32, a) } else { a };
        let result = self.rt_value(single as *const () as usize, F32, &[narrow]);
        Ok(if ty == F64 { self.b.ins().fpromote(F64, result) } else { result })
    }

    fn float_fma(&mut self, ty: Type, mods: FloatMods, a: Value, b: Value, c: Value) -> Gen<Value> {
        let [a, b, c] = [a, b, c].map(|v| self.flush_input(ty, mods, v));
        let native = self.unit.has_fma;
        let result = match ty {
            Type::F32 | Type::F64 if mods.round != Round::NearestEven => {
                let code = self.iconst(I32, convert::describe(format(ty), mods.round).into());
                let [a, b, c] = [a, b, c].map(|v| self.bits64(v));
                let bits = self.rt_value(convert::fma as *const () as usize, I64, &[code, a, b, c]);
                self.cast(bits, clif(ty))
            }
            Type::F32 | Type::F64 if native => self.b.ins().fma(a, b, c),
            Type::F32 => self.rt_value(convert::fma_f32 as *const () as usize, F32, &[a, b, c]),
            Type::F64 => self.rt_value(convert::fma_f64 as *const () as usize, F64, &[a, b, c]),
            _ => {
                let args = [a, b, c].map(|v| self.cast(v, I32));
                let function = if ty == Type::BF16 { convert::fma_bf16 } else { convert::fma_f16 };
                let result = self.rt_value(function as *const () as usize, I32, &args);
                self.b.ins().ireduce(I16, result)
            }
        };
        Ok(self.finish(ty, mods, result))
    }

    /// The lesser or greater operand. A NaN loses against a number unless `.nan` is given; -0 is
    /// less than +0.
    fn min_max(&mut self, max: bool, ty: Type, mods: FloatMods, a: Value, b: Value) -> Value {
        let class = clif(ty);
        let (mut wa, mut wb) = (self.widen(ty, a), self.widen(ty, b));
        let mut sign = None;
        if mods.xorsign_abs {
            let (ia, ib) = (self.as_int(a), self.as_int(b));
            let xor = self.b.ins().bxor(ia, ib);
            let ty = self.b.func.dfg.value_type(xor);
            sign = Some(self.b.ins().band_imm_u(xor, (1u64 << (ty.bits() - 1)) as i64));
            (wa, wb) = (self.b.ins().fabs(wa), self.b.ins().fabs(wb));
        }
        let best = if max { self.b.ins().fmax(wa, wb) } else { self.b.ins().fmin(wa, wb) };
        let (a_nan, b_nan) = (
            self.b.ins().fcmp(FloatCC::Unordered, wa, wa),
            self.b.ins().fcmp(FloatCC::Unordered, wb, wb),
        );
        let best = if mods.nan {
            best
        } else {
            let best = self.choose(a_nan, wb, best);
            self.choose(b_nan, wa, best)
        };
        let is_nan =
            if mods.nan { self.b.ins().bor(a_nan, b_nan) } else { self.b.ins().band(a_nan, b_nan) };
        let result = self.narrow(ty, best);
        let bits = self.as_int(result);
        let int = self.b.func.dfg.value_type(bits);
        let bits = match sign {
            Some(sign) => self.b.ins().bor(bits, sign),
            None => bits,
        };
        let canonical = self.iconst(int, format(ty).nan);
        let bits = self.choose(is_nan, canonical, bits);
        let result = self.cast(bits, class);
        self.flush(ty, mods.ftz, result)
    }

    fn test_property(&mut self, op: TestpOp, value: Value) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        let (infinity, least_normal) = if ty == F64 {
            (self.b.ins().f64const(f64::INFINITY), self.b.ins().f64const(f64::MIN_POSITIVE))
        } else {
            (self.b.ins().f32const(f32::INFINITY), self.b.ins().f32const(f32::MIN_POSITIVE))
        };
        let size = self.b.ins().fabs(value);
        match op {
            TestpOp::Finite => self.b.ins().fcmp(FloatCC::LessThan, size, infinity),
            TestpOp::Infinite => self.b.ins().fcmp(FloatCC::Equal, size, infinity),
            TestpOp::Number => self.b.ins().fcmp(FloatCC::Ordered, value, value),
            TestpOp::NotANumber => self.b.ins().fcmp(FloatCC::Unordered, value, value),
            // Hardware counts zero among the normal numbers.
            TestpOp::Normal | TestpOp::Subnormal => {
                let zero = self.iconst(int_of_size(ty.bytes()), 0);
                let zero = self.cast(zero, ty);
                let small = self.b.ins().fcmp(FloatCC::LessThan, size, least_normal);
                let nonzero = self.b.ins().fcmp(FloatCC::GreaterThan, size, zero);
                let subnormal = self.b.ins().band(small, nonzero);
                if op == TestpOp::Subnormal {
                    return subnormal;
                }
                let finite = self.b.ins().fcmp(FloatCC::LessThan, size, infinity);
                self.b.ins().band_not(finite, subnormal)
            }
        }
    }
}
