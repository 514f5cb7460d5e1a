//! Integer arithmetic.

use crate::codegen::func::{FuncGen, Gen};
use crate::codegen::types::int_of_size;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64, I128};
use cranelift_codegen::ir::{InstBuilder, Type as Clif, Value};
use outboard_ptx::Type;
use outboard_ptx::ir::{IntBinOp, IntUnOp, MulMode, Op, Operand, ShiftOp};

impl FuncGen<'_, '_> {
    pub(crate) fn integer(&mut self, op: &Op) -> Gen {
        match *op {
            Op::IntBin { op, ty, sat, dst, ref a, ref b } => {
                let class = int_of_size(ty.size());
                let divisor = Self::constant(b);
                let (a, b) = (self.value(a, class), self.value(b, class));
                let result = if ty.is_packed() {
                    self.packed(ty, a, b, |this, a, b| {
                        this.int_binary(op, ty.lane(), sat, a, b, None)
                    })?
                } else {
                    self.int_binary(op, ty, sat, a, b, divisor)?
                };
                self.set_extended(dst, result, ty.is_signed());
            }
            Op::IntUn { op, ty, dst, ref a } => {
                let class = int_of_size(ty.size());
                let a = self.value(a, class);
                let result = self.int_unary(op, ty, a);
                self.set_extended(dst, result, ty.is_signed());
            }
            Op::Shift { op, ty, dst, ref a, ref b } => {
                let class = int_of_size(ty.size());
                let value = self.value(a, class);
                let result = self.shift(op, ty, value, b);
                self.set_extended(dst, result, ty.is_signed());
            }
            Op::MulWide { ty, dst, ref a, ref b } => {
                let (a, b) = (self.widened(ty, a), self.widened(ty, b));
                let result = self.b.ins().imul(a, b);
                self.set_extended(dst, result, ty.is_signed());
            }
            Op::Mad { mode, ty, sat, dst, ref a, ref b, ref c } => {
                let result = if mode == MulMode::Wide {
                    let (a, b) = (self.widened(ty, a), self.widened(ty, b));
                    let product = self.b.ins().imul(a, b);
                    let c = self.value(c, int_of_size(ty.size() * 2));
                    self.b.ins().iadd(product, c)
                } else {
                    let class = int_of_size(ty.size());
                    let (a, b, c) =
                        (self.value(a, class), self.value(b, class), self.value(c, class));
                    let product = self.product(mode, ty, a, b);
                    if sat {
                        self.saturating(IntBinOp::Add, product, c)
                    } else {
                        self.b.ins().iadd(product, c)
                    }
                };
                self.set_extended(dst, result, ty.is_signed());
            }
            Op::Mul24 { hi, ty, dst, ref a, ref b } => {
                let (a, b) = (self.value(a, I32), self.value(b, I32));
                let result = self.product24(hi, ty, a, b);
                self.set(dst, result);
            }
            Op::Mad24 { hi, ty, sat, dst, ref a, ref b, ref c } => {
                let (a, b, c) = (self.value(a, I32), self.value(b, I32), self.value(c, I32));
                let product = self.product24(hi, ty, a, b);
                let result = if sat {
                    self.saturating(IntBinOp::Add, product, c)
                } else {
                    self.b.ins().iadd(product, c)
                };
                self.set(dst, result);
            }
            Op::AddCarry { sub, ty, carry_in, carry_out, dst, ref a, ref b } => {
                let class = int_of_size(ty.size());
                let (a, b) = (self.value(a, class), self.value(b, class));
                let result = self.add_carry(sub, carry_in, carry_out, a, b);
                self.set(dst, result);
            }
            Op::MadCarry { mode, ty, carry_in, carry_out, dst, ref a, ref b, ref c } => {
                let class = int_of_size(ty.size());
                let (a, b, c) = (self.value(a, class), self.value(b, class), self.value(c, class));
                let product = self.product(mode, ty, a, b);
                let result = self.add_carry(false, carry_in, carry_out, product, c);
                self.set(dst, result);
            }
            Op::Sad { ty, dst, ref a, ref b, ref c } => {
                let class = int_of_size(ty.size());
                let (a, b, c) = (self.value(a, class), self.value(b, class), self.value(c, class));
                let less = self.b.ins().icmp(
                    if ty.is_signed() { IntCC::SignedLessThan } else { IntCC::UnsignedLessThan },
                    a,
                    b,
                );
                let (up, down) = (self.b.ins().isub(b, a), self.b.ins().isub(a, b));
                let distance = self.choose(less, up, down);
                let result = self.b.ins().iadd(distance, c);
                self.set_extended(dst, result, ty.is_signed());
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    /// Applies `f` to both half-words of 32-bit values.
    pub(crate) fn packed(
        &mut self,
        ty: Type,
        a: Value,
        b: Value,
        mut f: impl FnMut(&mut Self, Value, Value) -> Gen<Value>,
    ) -> Gen<Value> {
        let class = int_of_size(ty.lane().size());
        let (a0, a1) = self.halves(a, class);
        let (b0, b1) = self.halves(b, class);
        let (low, high) = (f(self, a0, b0)?, f(self, a1, b1)?);
        Ok(self.join(low, high))
    }

    /// Lower and upper half of an integer.
    pub(crate) fn halves(&mut self, value: Value, half: Clif) -> (Value, Value) {
        let high = self.b.ins().ushr_imm_u(value, i64::from(half.bits()));
        (self.b.ins().ireduce(half, value), self.b.ins().ireduce(half, high))
    }

    /// An integer from its halves.
    pub(crate) fn join(&mut self, low: Value, high: Value) -> Value {
        let half = self.b.func.dfg.value_type(low);
        let whole = int_of_size(half.bytes() * 2);
        if whole == I128 {
            return self.b.ins().iconcat(low, high);
        }
        let (low, high) = (self.b.ins().uextend(whole, low), self.b.ins().uextend(whole, high));
        let high = self.b.ins().ishl_imm_u(high, i64::from(half.bits()));
        self.b.ins().bor(low, high)
    }

    fn widened(&mut self, ty: Type, operand: &Operand) -> Value {
        let value = self.value(operand, int_of_size(ty.size()));
        self.extend(ty, value, int_of_size(ty.size() * 2))
    }

    /// Sign- or zero-extends as the type says.
    pub(crate) fn extend(&mut self, ty: Type, value: Value, wide: Clif) -> Value {
        if self.b.func.dfg.value_type(value) == wide {
            value
        } else if ty.is_signed() {
            self.b.ins().sextend(wide, value)
        } else {
            self.b.ins().uextend(wide, value)
        }
    }

    fn product(&mut self, mode: MulMode, ty: Type, a: Value, b: Value) -> Value {
        match (mode, ty.size()) {
            (MulMode::Hi, 8) if ty.is_signed() => self.b.ins().smulhi(a, b),
            (MulMode::Hi, 8) => self.b.ins().umulhi(a, b),
            (MulMode::Hi, size) => {
                let wide = int_of_size(size * 2);
                let (a, b) = (self.extend(ty, a, wide), self.extend(ty, b, wide));
                let product = self.b.ins().imul(a, b);
                let high = self.b.ins().ushr_imm_u(product, i64::from(size * 8));
                self.b.ins().ireduce(int_of_size(size), high)
            }
            _ => self.b.ins().imul(a, b),
        }
    }

    fn product24(&mut self, hi: bool, ty: Type, a: Value, b: Value) -> Value {
        let mut low24 = |v: Value| {
            let wide = self.b.ins().uextend(I64, v);
            let up = self.b.ins().ishl_imm_u(wide, 40);
            if ty.is_signed() {
                self.b.ins().sshr_imm_u(up, 40)
            } else {
                self.b.ins().ushr_imm_u(up, 40)
            }
        };
        let (a, b) = (low24(a), low24(b));
        let product = self.b.ins().imul(a, b);
        let product = if hi { self.b.ins().ushr_imm_u(product, 16) } else { product };
        self.b.ins().ireduce(I32, product)
    }

    /// Sum or difference of 32-bit signed values, clamped.
    fn saturating(&mut self, op: IntBinOp, a: Value, b: Value) -> Value {
        let (a, b) = (self.b.ins().sextend(I64, a), self.b.ins().sextend(I64, b));
        let exact =
            if op == IntBinOp::Sub { self.b.ins().isub(a, b) } else { self.b.ins().iadd(a, b) };
        let (low, high) =
            (self.iconst(I64, i64::from(i32::MIN) as u64), self.iconst(I64, i32::MAX as u64));
        let clamped = self.b.ins().smax(exact, low);
        let clamped = self.b.ins().smin(clamped, high);
        self.b.ins().ireduce(I32, clamped)
    }

    fn int_binary(
        &mut self,
        op: IntBinOp,
        ty: Type,
        sat: bool,
        a: Value,
        b: Value,
        divisor: Option<u64>,
    ) -> Gen<Value> {
        let signed = ty.is_signed();
        if sat && ty.size() == 4 {
            return Ok(self.saturating(op, a, b));
        }
        // The code generator has no 16-bit forms of some of these: computed in 32 bits.
        if ty.size() < 4
            && matches!(op, IntBinOp::Div | IntBinOp::Rem | IntBinOp::Min | IntBinOp::Max)
        {
            let wide = if signed { Type::S32 } else { Type::U32 };
            let narrow = self.b.func.dfg.value_type(a);
            let (a, b) = (self.extend(ty, a, I32), self.extend(ty, b, I32));
            // Sixteen bits divided by zero give sixteen ones, which the low half of the wide result
            // is.
            let divisor = divisor.filter(|_| !signed);
            let result = self.int_binary(op, wide, false, a, b, divisor)?;
            return Ok(self.b.ins().ireduce(narrow, result));
        }
        Ok(match op {
            IntBinOp::Add => self.b.ins().iadd(a, b),
            IntBinOp::Sub => self.b.ins().isub(a, b),
            IntBinOp::MulLo => self.b.ins().imul(a, b),
            IntBinOp::MulHi => self.product(MulMode::Hi, ty, a, b),
            IntBinOp::And => self.b.ins().band(a, b),
            IntBinOp::Or => self.b.ins().bor(a, b),
            IntBinOp::Xor => self.b.ins().bxor(a, b),
            IntBinOp::Min if signed => self.b.ins().smin(a, b),
            IntBinOp::Min => self.b.ins().umin(a, b),
            IntBinOp::Max if signed => self.b.ins().smax(a, b),
            IntBinOp::Max => self.b.ins().umax(a, b),
            IntBinOp::Div | IntBinOp::Rem => {
                self.divide(op == IntBinOp::Rem, signed, a, b, divisor)
            }
        })
    }

    /// Division that never traps, as PTX has it.
    fn divide(
        &mut self,
        rem: bool,
        signed: bool,
        a: Value,
        b: Value,
        divisor: Option<u64>,
    ) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let ones = if ty.bits() == 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
        if divisor.is_some_and(|d| d & ones != 0 && d & ones != ones) {
            return match (rem, signed) {
                (false, false) => self.b.ins().udiv(a, b),
                (false, true) => self.b.ins().sdiv(a, b),
                (true, false) => self.b.ins().urem(a, b),
                (true, true) => self.b.ins().srem(a, b),
            };
        }
        let one = self.iconst(ty, 1);
        let zero = self.iconst(ty, 0);
        let all_ones = self.iconst(ty, u64::MAX);
        let by_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
        if !signed {
            let safe = self.choose(by_zero, one, b);
            return if rem {
                let result = self.b.ins().urem(a, safe);
                self.choose(by_zero, a, result)
            } else {
                let result = self.b.ins().udiv(a, safe);
                self.choose(by_zero, all_ones, result)
            };
        }
        // Dividing the minimum by -1 overflows: by -1 means to negate.
        let by_minus_one = self.b.ins().icmp(IntCC::Equal, b, all_ones);
        let special = self.b.ins().bor(by_zero, by_minus_one);
        let safe = self.choose(special, one, b);
        if rem {
            let result = self.b.ins().srem(a, safe);
            self.choose(by_zero, a, result)
        } else {
            let result = self.b.ins().sdiv(a, safe);
            let negated = self.b.ins().ineg(a);
            let result = self.choose(by_minus_one, negated, result);
            self.choose(by_zero, all_ones, result)
        }
    }

    fn int_unary(&mut self, op: IntUnOp, ty: Type, a: Value) -> Value {
        let class = self.b.func.dfg.value_type(a);
        match op {
            IntUnOp::Neg => self.b.ins().ineg(a),
            IntUnOp::Abs => {
                let negated = self.b.ins().ineg(a);
                let negative = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, a, 0);
                self.choose(negative, negated, a)
            }
            IntUnOp::Not if ty == Type::Pred => self.b.ins().bxor_imm_s(a, 1),
            IntUnOp::Not => self.b.ins().bnot(a),
            IntUnOp::Cnot => {
                let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, a, 0);
                if class == I8 { is_zero } else { self.b.ins().uextend(class, is_zero) }
            }
            IntUnOp::Brev => self.b.ins().bitrev(a),
            IntUnOp::Popc | IntUnOp::Clz => {
                let count =
                    if op == IntUnOp::Popc { self.b.ins().popcnt(a) } else { self.b.ins().clz(a) };
                self.cast(count, I32)
            }
        }
    }

    /// A shift whose amount counts as it is, not modulo the width.
    fn shift(&mut self, op: ShiftOp, ty: Type, value: Value, amount: &Operand) -> Value {
        let class = self.b.func.dfg.value_type(value);
        let width = u64::from(ty.bits());
        let fills = op == ShiftOp::Shr && ty.is_signed();
        if let Some(amount) = Self::constant(amount) {
            let amount = amount & 0xffff_ffff;
            return match (op, fills) {
                (_, true) => self.b.ins().sshr_imm_u(value, amount.min(width - 1) as i64),
                _ if amount >= width => self.iconst(class, 0),
                (ShiftOp::Shl, _) => self.b.ins().ishl_imm_u(value, amount as i64),
                (ShiftOp::Shr, _) => self.b.ins().ushr_imm_u(value, amount as i64),
            };
        }
        let amount = self.value(amount, I32);
        let limit = self.iconst(I32, width - 1);
        let small = self.b.ins().umin(amount, limit);
        if fills {
            return self.b.ins().sshr(value, small);
        }
        let shifted = if op == ShiftOp::Shl {
            self.b.ins().ishl(value, small)
        } else {
            self.b.ins().ushr(value, small)
        };
        let within = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, amount, limit);
        let zero = self.iconst(class, 0);
        self.choose(within, shifted, zero)
    }

    fn add_carry(
        &mut self,
        sub: bool,
        carry_in: bool,
        carry_out: bool,
        a: Value,
        b: Value,
    ) -> Value {
        let class = self.b.func.dfg.value_type(a);
        let first = if sub { self.b.ins().isub(a, b) } else { self.b.ins().iadd(a, b) };
        // A sum below an addend carried; a difference of a lesser minuend borrowed. The flag of a
        // subtraction is the carry of adding the complement: set when nothing was borrowed.
        let mut carry = if sub {
            self.b.ins().icmp(IntCC::UnsignedLessThan, a, b)
        } else {
            self.b.ins().icmp(IntCC::UnsignedLessThan, first, a)
        };
        let mut result = first;
        if carry_in {
            let flag = self.b.use_var(self.carry);
            let flag = if sub { self.b.ins().bxor_imm_s(flag, 1) } else { flag };
            let flag = self.b.ins().uextend(class, flag);
            let second =
                if sub { self.b.ins().isub(first, flag) } else { self.b.ins().iadd(first, flag) };
            let again = if sub {
                self.b.ins().icmp(IntCC::UnsignedLessThan, first, flag)
            } else {
                self.b.ins().icmp(IntCC::UnsignedLessThan, second, first)
            };
            carry = self.b.ins().bor(carry, again);
            result = second;
        }
        if carry_out {
            let carry = if sub { self.b.ins().bxor_imm_s(carry, 1) } else { carry };
            self.b.def_var(self.carry, carry);
        }
        result
    }
}
