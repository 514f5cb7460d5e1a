//! Conversions that arithmetic needs, and what modifiers do to results.

use crate::codegen::func::FuncGen;
use crate::codegen::types::{clif, format, int_of_size};
use crate::rt::convert;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use outboard_ptx::Type;
use outboard_ptx::ir::FloatMods;

impl FuncGen<'_, '_> {
    /// The bits of a value, zero-extended to 64.
    pub(crate) fn bits64(&mut self, value: Value) -> Value {
        self.cast(value, I64)
    }

    /// A value of `ty` in the type that it is computed in.
    pub(crate) fn widen(&mut self, ty: Type, value: Value) -> Value {
        match ty {
            Type::F16 => self.half_to_single(value),
            Type::BF16 => {
                let single = self.bfloat_to_single(value);
                self.b.ins().fpromote(F64, single)
            }
            _ => value,
        }
    }

    /// A computed value rounded to `ty`.
    pub(crate) fn narrow(&mut self, ty: Type, value: Value) -> Value {
        match ty {
            Type::F16 => self.single_to_half(value),
            Type::BF16 => {
                let bits = self.rt_value(convert::f64_to_bf16 as *const () as usize, I32, &[value]);
                self.b.ins().ireduce(I16, bits)
            }
            _ => value,
        }
    }

    pub(crate) fn single_to_half(&mut self, value: Value) -> Value {
        let bits = self.rt_value(convert::f32_to_f16 as *const () as usize, I32, &[value]);
        self.b.ins().ireduce(I16, bits)
    }

    /// Exact. The exponent is moved by a multiplication, which takes care of subnormals too.
    pub(crate) fn half_to_single(&mut self, value: Value) -> Value {
        let bits = self.b.ins().uextend(I32, value);
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff);
        let placed = self.b.ins().ishl_imm_u(magnitude, 13);
        let scaled = self.cast(placed, F32);
        let factor = self.b.ins().f32const(f32::from_bits(0x7780_0000));
        let scaled = self.b.ins().fmul(scaled, factor);
        let finite = self.as_int(scaled);
        let special = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7c00);
        let top = self.b.ins().bor_imm_u(placed, 0x7f80_0000);
        let result = self.choose(special, top, finite);
        let sign = self.b.ins().band_imm_u(bits, 0x8000);
        let sign = self.b.ins().ishl_imm_u(sign, 16);
        let result = self.b.ins().bor(result, sign);
        self.cast(result, F32)
    }

    /// Exact.
    pub(crate) fn bfloat_to_single(&mut self, value: Value) -> Value {
        let bits = self.b.ins().uextend(I32, value);
        let bits = self.b.ins().ishl_imm_u(bits, 16);
        self.cast(bits, F32)
    }

    pub(super) fn flush_input(&mut self, ty: Type, mods: FloatMods, value: Value) -> Value {
        self.flush(ty, mods.ftz, value)
    }

    /// With `ftz`, subnormal values become zeros of the same sign.
    pub(crate) fn flush(&mut self, ty: Type, ftz: bool, value: Value) -> Value {
        let exponent = match ty {
            Type::F32 => 0x7f80_0000,
            Type::F16 => 0x7c00,
            _ => return value,
        };
        if !ftz {
            return value;
        }
        let bits = self.as_int(value);
        let int = self.b.func.dfg.value_type(bits);
        let exponent = self.b.ins().band_imm_u(bits, exponent);
        let small = self.b.ins().icmp_imm_u(IntCC::Equal, exponent, 0);
        let zero = self.b.ins().band_imm_u(bits, 1i64 << (int.bits() - 1));
        let result = self.choose(small, zero, bits);
        self.cast(result, clif(ty))
    }

    /// What the modifiers do to a result.
    pub(crate) fn finish(&mut self, ty: Type, mods: FloatMods, value: Value) -> Value {
        let mut value = self.flush(ty, mods.ftz, value);
        if mods.sat {
            value = self.saturate(ty, value);
        }
        if mods.relu {
            value = self.relu(ty, value);
        }
        value
    }

    /// Clamps to [0, 1]; NaN becomes +0.
    pub(crate) fn saturate(&mut self, ty: Type, value: Value) -> Value {
        let wide = self.widen(ty, value);
        let double = self.b.func.dfg.value_type(wide) == F64;
        let (zero, one) = if double {
            (self.b.ins().f64const(0.0), self.b.ins().f64const(1.0))
        } else {
            (self.b.ins().f32const(0.0), self.b.ins().f32const(1.0))
        };
        let positive = self.b.ins().fcmp(FloatCC::GreaterThan, wide, zero);
        let above = self.b.ins().fcmp(FloatCC::GreaterThan, wide, one);
        let class = clif(ty);
        let (zero, one) = if class.is_float() {
            (zero, one)
        } else {
            let one = if ty == Type::F16 { 0x3c00 } else { 0x3f80 };
            (self.iconst(class, 0), self.iconst(class, one))
        };
        let result = self.choose(positive, value, zero);
        self.choose(above, one, result)
    }

    /// Negative values become +0, NaN the canonical NaN.
    pub(crate) fn relu(&mut self, ty: Type, value: Value) -> Value {
        let bits = self.as_int(value);
        let int = self.b.func.dfg.value_type(bits);
        let wide = self.widen(ty, value);
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, wide, wide);
        let negative = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, bits, 0);
        let (zero, nan) = (self.iconst(int, 0), self.iconst(int, format(ty).nan));
        let result = self.choose(negative, zero, bits);
        let result = self.choose(is_nan, nan, result);
        self.cast(result, clif(ty))
    }

    /// The bits of an `I8` truth as all ones or zeros of another width.
    pub(crate) fn mask_of(&mut self, truth: Value, bytes: u32) -> Value {
        let int = int_of_size(bytes);
        let wide = if int == I8 { truth } else { self.b.ins().uextend(int, truth) };
        self.b.ins().ineg(wide)
    }
}
