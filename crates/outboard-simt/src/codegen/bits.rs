//! Bit fields, permutations, logic tables and dot products.

use crate::codegen::func::{FuncGen, Gen};
use crate::codegen::types::int_of_size;
use crate::rt::bits::{self, Video};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use outboard_ptx::ir::{BoolOp, Op, Operand, PrmtMode, WrapMode};

impl FuncGen<'_, '_> {
    pub(crate) fn bits(&mut self, op: &Op) -> Gen {
        match *op {
            Op::Bfind { ty, shiftamt, dst, ref a } => {
                let value = self.wide(a, ty.size());
                let args = [ty.bits(), ty.is_signed().into(), shiftamt.into()]
                    .map(|v| self.iconst(I32, v.into()));
                let result = self.rt_value(
                    bits::bfind as *const () as usize,
                    I32,
                    &[args[0], args[1], args[2], value],
                );
                self.set(dst, result);
            }
            Op::Fns { dst, ref mask, ref base, ref offset } => {
                let args = [mask, base, offset].map(|v| self.value(v, I32));
                let result = self.rt_value(bits::fns as *const () as usize, I32, &args);
                self.set(dst, result);
            }
            Op::Bfe { ty, dst, ref a, ref pos, ref len } => {
                let class = int_of_size(ty.size());
                let result = match (Self::constant(pos), Self::constant(len)) {
                    (Some(pos @ 0..=64), Some(len @ 1..=64))
                        if pos + len <= u64::from(ty.bits()) =>
                    {
                        let (pos, len) = (pos as i64, len as i64);
                        let value = self.value(a, class);
                        let up = self.b.ins().ishl_imm_u(value, i64::from(ty.bits()) - pos - len);
                        let down = i64::from(ty.bits()) - len;
                        if ty.is_signed() {
                            self.b.ins().sshr_imm_u(up, down)
                        } else {
                            self.b.ins().ushr_imm_u(up, down)
                        }
                    }
                    _ => {
                        let value = self.wide(a, ty.size());
                        let (pos, len) = (self.value(pos, I32), self.value(len, I32));
                        let [width, signed] =
                            [ty.bits(), ty.is_signed().into()].map(|v| self.iconst(I32, v.into()));
                        self.rt_value(
                            bits::bfe as *const () as usize,
                            I64,
                            &[width, signed, value, pos, len],
                        )
                    }
                };
                let result = self.cast(result, class);
                self.set(dst, result);
            }
            Op::Bfi { ty, dst, ref a, ref b, ref pos, ref len } => {
                let (a, b) = (self.wide(a, ty.size()), self.wide(b, ty.size()));
                let (pos, len) = (self.value(pos, I32), self.value(len, I32));
                let width = self.iconst(I32, ty.bits().into());
                let result =
                    self.rt_value(bits::bfi as *const () as usize, I64, &[width, a, b, pos, len]);
                let result = self.cast(result, int_of_size(ty.size()));
                self.set(dst, result);
            }
            Op::Bmsk { mode, dst, ref a, ref b } => {
                let wrap = self.iconst(I32, (mode == WrapMode::Wrap).into());
                let (a, b) = (self.value(a, I32), self.value(b, I32));
                let result = self.rt_value(bits::bmsk as *const () as usize, I32, &[wrap, a, b]);
                self.set(dst, result);
            }
            Op::Szext { mode, ty, dst, ref a, ref b } => {
                let [wrap, signed] = [mode == WrapMode::Wrap, ty.is_signed()]
                    .map(|flag| self.iconst(I32, flag.into()));
                let (a, b) = (self.value(a, I32), self.value(b, I32));
                let result =
                    self.rt_value(bits::szext as *const () as usize, I32, &[wrap, signed, a, b]);
                self.set(dst, result);
            }
            Op::Shf { left, mode, dst, ref a, ref b, ref c } => {
                let (low, high, amount) =
                    (self.value(a, I32), self.value(b, I32), self.value(c, I32));
                let both = self.join(low, high);
                let amount = if mode == WrapMode::Wrap {
                    self.b.ins().band_imm_u(amount, 31)
                } else {
                    let limit = self.iconst(I32, 32);
                    self.b.ins().umin(amount, limit)
                };
                let shifted = if left {
                    let up = self.b.ins().ishl(both, amount);
                    self.b.ins().ushr_imm_u(up, 32)
                } else {
                    self.b.ins().ushr(both, amount)
                };
                let result = self.b.ins().ireduce(I32, shifted);
                self.set(dst, result);
            }
            Op::Prmt { mode, dst, ref a, ref b, ref c } => {
                let result = match Self::constant(c) {
                    Some(selector) if mode == PrmtMode::Generic => {
                        self.permute(a, b, selector as u32)
                    }
                    _ => {
                        let mode = self.iconst(I32, bits::prmt_code(mode).into());
                        let args = [a, b, c].map(|v| self.value(v, I32));
                        self.rt_value(
                            bits::prmt as *const () as usize,
                            I32,
                            &[mode, args[0], args[1], args[2]],
                        )
                    }
                };
                self.set(dst, result);
            }
            Op::Lop3 { lut, dst, ref a, ref b, ref c, ref pred } => {
                let [a, b, c] = [a, b, c].map(|v| self.value(v, I32));
                let result = self.logic3(lut, a, b, c);
                if let Some((p, op, q)) = pred {
                    let nonzero = self.b.ins().icmp_imm_s(IntCC::NotEqual, result, 0);
                    let q = self.pred(q);
                    let combined = self.combine(*op, nonzero, q);
                    self.set(*p, combined);
                }
                if let Some(dst) = dst {
                    self.set(dst, result);
                }
            }
            Op::Dp4a { a_signed, b_signed, dst, ref a, ref b, ref c } => {
                let [a, b, mut sum] = [a, b, c].map(|v| self.value(v, I32));
                for i in 0..4 {
                    let (x, y) =
                        (self.field(a, i * 8, 8, a_signed), self.field(b, i * 8, 8, b_signed));
                    let product = self.b.ins().imul(x, y);
                    sum = self.b.ins().iadd(sum, product);
                }
                self.set(dst, sum);
            }
            Op::Dp2a { hi, a_signed, b_signed, dst, ref a, ref b, ref c } => {
                let [a, b, mut sum] = [a, b, c].map(|v| self.value(v, I32));
                for i in 0..2 {
                    let byte = if hi { 16 + i * 8 } else { i * 8 };
                    let (x, y) =
                        (self.field(a, i * 16, 16, a_signed), self.field(b, byte, 8, b_signed));
                    let product = self.b.ins().imul(x, y);
                    sum = self.b.ins().iadd(sum, product);
                }
                self.set(dst, sum);
            }
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
                ref a,
                ref b,
                ref c,
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
                let code = self.iconst(I64, video.encode());
                let [a, b, c] = [a, b, c].map(|v| self.value(v, I32));
                let result =
                    self.rt_value(bits::video as *const () as usize, I32, &[code, a, b, c]);
                self.set(dst, result);
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    /// An operand of `size` bytes, zero-extended to 64 bits.
    fn wide(&mut self, operand: &Operand, size: u32) -> Value {
        let value = self.value(operand, int_of_size(size));
        self.cast(value, I64)
    }

    /// Bits `pos .. pos + len` of a 32-bit value.
    fn field(&mut self, value: Value, pos: u32, len: u32, signed: bool) -> Value {
        let up = self.b.ins().ishl_imm_u(value, i64::from(32 - pos - len));
        let down = i64::from(32 - len);
        if signed { self.b.ins().sshr_imm_u(up, down) } else { self.b.ins().ushr_imm_u(up, down) }
    }

    /// A permutation by a constant selector.
    fn permute(&mut self, a: &Operand, b: &Operand, selector: u32) -> Value {
        let (a, b) = (self.value(a, I32), self.value(b, I32));
        let mut result = None;
        for i in 0..4 {
            let s = selector >> (4 * i) & 15;
            let source = if s & 4 == 0 { a } else { b };
            let byte = if s & 8 == 0 {
                self.field(source, (s & 3) * 8, 8, false)
            } else {
                let sign = self.field(source, (s & 3) * 8 + 7, 1, true);
                self.b.ins().band_imm_u(sign, 0xff)
            };
            let placed = self.b.ins().ishl_imm_u(byte, i64::from(8 * i));
            result = Some(match result {
                None => placed,
                Some(sum) => self.b.ins().bor(sum, placed),
            });
        }
        result.unwrap_or(a)
    }

    /// Two predicates combined.
    pub(crate) fn combine(&mut self, op: BoolOp, a: Value, b: Value) -> Value {
        debug_assert_eq!(self.b.func.dfg.value_type(a), I8);
        match op {
            BoolOp::And => self.b.ins().band(a, b),
            BoolOp::Or => self.b.ins().bor(a, b),
            BoolOp::Xor => self.b.ins().bxor(a, b),
        }
    }

    /// The function of three bits that a table gives: one function of `b` and `c` where `a` is set,
    /// another where it is not.
    fn logic3(&mut self, lut: u8, a: Value, b: Value, c: Value) -> Value {
        match lut {
            0x96 => {
                let ab = self.b.ins().bxor(a, b);
                return self.b.ins().bxor(ab, c);
            }
            0xfe => {
                let ab = self.b.ins().bor(a, b);
                return self.b.ins().bor(ab, c);
            }
            0x80 => {
                let ab = self.b.ins().band(a, b);
                return self.b.ins().band(ab, c);
            }
            _ => {}
        }
        let (clear, set) = (self.logic2(lut & 15, b, c), self.logic2(lut >> 4, b, c));
        if lut & 15 == lut >> 4 {
            return clear;
        }
        self.b.ins().bitselect(a, set, clear)
    }

    /// The function of two bits whose value for (b, c) is bit `2b + c` of `table`.
    fn logic2(&mut self, table: u8, b: Value, c: Value) -> Value {
        match table {
            0x0 => self.iconst(I32, 0),
            0x1 => {
                let or = self.b.ins().bor(b, c);
                self.b.ins().bnot(or)
            }
            0x2 => self.b.ins().band_not(c, b),
            0x3 => self.b.ins().bnot(b),
            0x4 => self.b.ins().band_not(b, c),
            0x5 => self.b.ins().bnot(c),
            0x6 => self.b.ins().bxor(b, c),
            0x7 => {
                let and = self.b.ins().band(b, c);
                self.b.ins().bnot(and)
            }
            0x8 => self.b.ins().band(b, c),
            0x9 => {
                let xor = self.b.ins().bxor(b, c);
                self.b.ins().bnot(xor)
            }
            0xa => c,
            0xb => self.b.ins().bor_not(c, b),
            0xc => b,
            0xd => self.b.ins().bor_not(b, c),
            0xe => self.b.ins().bor(b, c),
            _ => self.iconst(I32, u64::MAX),
        }
    }
}
