//! Integer operations on bit patterns, computed in 128 bits.

use super::convert::range;
use crate::ir::{CmpOp, IntBinOp, IntUnOp, MulMode, PrmtMode, ShiftOp, VideoOp, WrapMode};
use crate::types::Type;

fn mask(ty: Type) -> u128 {
    if ty.bits() == 128 { u128::MAX } else { (1 << ty.bits()) - 1 }
}

/// The low bits of the type's width.
pub(super) fn unsigned(ty: Type, bits: u128) -> u128 {
    bits & mask(ty)
}

/// The bits read as two's complement.
pub(super) fn signed(ty: Type, bits: u128) -> i128 {
    let shift = 128 - ty.bits();
    ((bits << shift) as i128) >> shift
}

/// The value as the type has it.
fn value(ty: Type, bits: u128) -> i128 {
    if ty.is_signed() { signed(ty, bits) } else { unsigned(ty, bits) as i128 }
}

pub(super) fn binary(op: IntBinOp, ty: Type, sat: bool, a: u128, b: u128) -> u128 {
    let (x, y) = (value(ty, a), value(ty, b));
    let result = match op {
        IntBinOp::Add => x + y,
        IntBinOp::Sub => x - y,
        IntBinOp::MulLo => x.wrapping_mul(y),
        IntBinOp::MulHi => return mul_hi(ty, a, b),
        IntBinOp::Div if y == 0 => -1,
        IntBinOp::Div => x / y,
        IntBinOp::Rem if y == 0 => x,
        IntBinOp::Rem => x % y,
        IntBinOp::Min => x.min(y),
        IntBinOp::Max => x.max(y),
        IntBinOp::And => (a & b) as i128,
        IntBinOp::Or => (a | b) as i128,
        IntBinOp::Xor => (a ^ b) as i128,
    };
    if sat {
        let (low, high) = range(ty);
        return result.clamp(low, high) as u128;
    }
    result as u128
}

fn mul_hi(ty: Type, a: u128, b: u128) -> u128 {
    if ty.is_signed() {
        (signed(ty, a).wrapping_mul(signed(ty, b)) >> ty.bits()) as u128
    } else {
        unsigned(ty, a).wrapping_mul(unsigned(ty, b)) >> ty.bits()
    }
}

/// The product as `mode` wants it, not yet cut to the result's width.
pub(super) fn mul(mode: MulMode, ty: Type, a: u128, b: u128) -> u128 {
    match mode {
        MulMode::Hi => mul_hi(ty, a, b),
        MulMode::Lo | MulMode::Wide => (value(ty, a) as u128).wrapping_mul(value(ty, b) as u128),
    }
}

pub(super) fn mad(mode: MulMode, ty: Type, sat: bool, a: u128, b: u128, c: u128) -> u128 {
    let product = mul(mode, ty, a, b);
    if sat {
        let (low, high) = range(ty);
        return (signed(ty, product) + signed(ty, c)).clamp(low, high) as u128;
    }
    product.wrapping_add(c)
}

pub(super) fn mul24(hi: bool, ty: Type, a: u128, b: u128) -> u128 {
    let low24 = |bits: u128| match ty.is_signed() {
        true => ((bits << 104) as i128) >> 104,
        false => (bits & 0xff_ffff) as i128,
    };
    let product = low24(a) * low24(b);
    (if hi { product >> 16 } else { product }) as u128
}

/// Addition (or subtraction) with carry; gives the result and the carry out.
pub(super) fn add_carry(sub: bool, ty: Type, carry: bool, a: u128, b: u128) -> (u128, bool) {
    let (a, b, carry) = (unsigned(ty, a), unsigned(ty, b), u128::from(carry));
    let result = if sub { a.wrapping_sub(b).wrapping_sub(carry) } else { a + b + carry };
    // A borrow, or a carry, shows in the bit above.
    (unsigned(ty, result), (result >> ty.bits()) & 1 != 0)
}

pub(super) fn unary(op: IntUnOp, ty: Type, a: u128) -> u128 {
    let low = unsigned(ty, a);
    match op {
        IntUnOp::Neg => low.wrapping_neg(),
        IntUnOp::Abs => signed(ty, a).unsigned_abs(),
        IntUnOp::Not if ty == Type::Pred => u128::from(a & 1 == 0),
        IntUnOp::Not => !low,
        IntUnOp::Cnot => u128::from(low == 0),
        IntUnOp::Brev => low.reverse_bits() >> (128 - ty.bits()),
        IntUnOp::Popc => u128::from(low.count_ones()),
        IntUnOp::Clz => u128::from(low.leading_zeros() - (128 - ty.bits())),
    }
}

pub(super) fn shift(op: ShiftOp, ty: Type, a: u128, amount: u128) -> u128 {
    let amount = (amount as u32).min(ty.bits());
    match op {
        ShiftOp::Shl => unsigned(ty, a) << amount,
        ShiftOp::Shr if ty.is_signed() => (signed(ty, a) >> amount) as u128,
        ShiftOp::Shr => unsigned(ty, a) >> amount,
    }
}

pub(super) fn sad(ty: Type, a: u128, b: u128, c: u128) -> u128 {
    value(ty, a).abs_diff(value(ty, b)).wrapping_add(c)
}

pub(super) fn bfind(ty: Type, shiftamt: bool, a: u128) -> u128 {
    let bits = if ty.is_signed() && signed(ty, a) < 0 { unsigned(ty, !a) } else { unsigned(ty, a) };
    if bits == 0 {
        return 0xffff_ffff;
    }
    let position = bits.ilog2();
    u128::from(if shiftamt { ty.bits() - 1 - position } else { position })
}

pub(super) fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    let set = |position: i64| (0..32).contains(&position) && mask >> position & 1 != 0;
    let base = i64::from(base);
    if offset == 0 {
        return if set(base) { base as u32 } else { u32::MAX };
    }
    let step = if offset > 0 { 1 } else { -1 };
    let mut left = offset.unsigned_abs();
    let mut position = base;
    while (0..32).contains(&position) {
        if set(position) {
            left -= 1;
            if left == 0 {
                return position as u32;
            }
        }
        position += step;
    }
    u32::MAX
}

pub(super) fn bfe(ty: Type, a: u128, pos: u128, len: u128) -> u128 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    let width = ty.bits();
    let bit = |position: u32| a >> position & 1;
    // The bit that fills up: the highest one of the field, or of the source beyond it.
    let fill = if ty.is_signed() && len > 0 { bit((pos + len - 1).min(width - 1)) } else { 0 };
    (0..width).fold(0, |all, index| {
        let found = if index < len && pos + index < width { bit(pos + index) } else { fill };
        all | found << index
    })
}

pub(super) fn bfi(ty: Type, a: u128, b: u128, pos: u128, len: u128) -> u128 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    (0..len).take_while(|index| pos + index < ty.bits()).fold(b, |all, index| {
        let at = pos + index;
        all & !(1 << at) | (a >> index & 1) << at
    })
}

pub(super) fn bmsk(mode: WrapMode, a: u32, b: u32) -> u32 {
    let (start, len) = match mode {
        WrapMode::Clamp => (a.min(32), b.min(32)),
        WrapMode::Wrap => (a & 31, b & 31),
    };
    let mask = ((1u64 << len) - 1) << start;
    mask as u32
}

pub(super) fn szext(mode: WrapMode, signed: bool, a: u32, b: u32) -> u32 {
    let n = match mode {
        WrapMode::Clamp => b.min(32),
        WrapMode::Wrap => b & 31,
    };
    match n {
        0 => 0,
        32.. => a,
        _ if signed => ((a << (32 - n)) as i32 >> (32 - n)) as u32,
        _ => a & ((1 << n) - 1),
    }
}

pub(super) fn funnel(left: bool, mode: WrapMode, a: u32, b: u32, c: u32) -> u32 {
    let n = match mode {
        WrapMode::Clamp => c.min(32),
        WrapMode::Wrap => c & 31,
    };
    let both = u64::from(b) << 32 | u64::from(a);
    if left { ((both << n) >> 32) as u32 } else { (both >> n) as u32 }
}

pub(super) fn prmt(mode: PrmtMode, a: u32, b: u32, c: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    let byte = |index: u32| (both >> (8 * (index & 7))) as u8;
    let low = c & 3;
    let pick = |index: u32| match mode {
        PrmtMode::Generic => {
            let selector = c >> (4 * index) & 0xf;
            let found = byte(selector);
            if selector & 8 == 0 { found } else { ((found as i8) >> 7) as u8 }
        }
        PrmtMode::F4e => byte(low + index),
        PrmtMode::B4e => byte(low.wrapping_sub(index)),
        PrmtMode::Rc8 => byte(low),
        PrmtMode::Ecl => byte(low.max(index)),
        PrmtMode::Ecr => byte(low.min(index)),
        PrmtMode::Rc16 => byte((low & 1) * 2 + (index & 1)),
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

pub(super) fn lop3(lut: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..32).fold(0, |all, bit| {
        let index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
        all | u32::from(lut >> index & 1) << bit
    })
}

/// Sum of products of `(width_a-bit, 8-bit)` elements, plus `c`.
pub(super) fn dot(
    width: u32,
    hi: bool,
    a_signed: bool,
    b_signed: bool,
    a: u32,
    b: u32,
    c: u32,
) -> u32 {
    let element = |word: u32, index: u32, width: u32, signed: bool| {
        let bits = i64::from(word) >> (index * width) & ((1 << width) - 1);
        if signed && bits >> (width - 1) != 0 { bits - (1 << width) } else { bits }
    };
    let count = 32 / width;
    let first = if hi { count } else { 0 };
    let sum: i64 = (0..count)
        .map(|index| element(a, index, width, a_signed) * element(b, first + index, 8, b_signed))
        .sum();
    c.wrapping_add(sum as u32)
}

pub(super) fn compare(cmp: CmpOp, ty: Type, a: u128, b: u128) -> bool {
    let (x, y) = (value(ty, a), value(ty, b));
    match cmp {
        CmpOp::Eq => x == y,
        CmpOp::Ne => x != y,
        CmpOp::Lt => x < y,
        CmpOp::Le => x <= y,
        CmpOp::Gt => x > y,
        _ => x >= y,
    }
}

/// A SIMD video instruction; fields as in [`crate::ir::Op::Video`].
pub(super) struct Video {
    pub(super) op: VideoOp,
    pub(super) lanes: u8,
    pub(super) d_signed: bool,
    pub(super) a_signed: bool,
    pub(super) b_signed: bool,
    pub(super) sat: bool,
    pub(super) accumulate: bool,
    pub(super) mask: u8,
    pub(super) a_sel: [u8; 4],
    pub(super) b_sel: [u8; 4],
}

impl Video {
    pub(super) fn apply(&self, a: u32, b: u32, c: u32) -> u32 {
        let width = 32 / u32::from(self.lanes);
        let lane_mask = (1u32 << width) - 1;
        let both = u64::from(b) << 32 | u64::from(a);
        let read = |selector: u8, signed: bool| {
            let bits = ((both >> (u32::from(selector) * width)) as u32 & lane_mask) as i32;
            if signed { bits << (32 - width) >> (32 - width) } else { bits }
        };
        let (low, high) = match self.d_signed {
            true => (-(1 << (width - 1)), (1 << (width - 1)) - 1),
            false => (0, lane_mask as i32),
        };
        let mut result = if self.accumulate { c } else { 0 };
        for lane in 0..self.lanes {
            let at = u32::from(lane) * width;
            if self.mask >> lane & 1 == 0 {
                if !self.accumulate {
                    result |= c & (lane_mask << at);
                }
                continue;
            }
            let x = read(self.a_sel[usize::from(lane)], self.a_signed);
            let y = read(self.b_sel[usize::from(lane)], self.b_signed);
            let mut value = match self.op {
                VideoOp::Add => x + y,
                VideoOp::Sub => x - y,
                VideoOp::Avrg => (x + y + i32::from(x + y >= 0)) >> 1,
                VideoOp::Absdiff => (x - y).abs(),
                VideoOp::Min => x.min(y),
                VideoOp::Max => x.max(y),
                VideoOp::Set(cmp) => i32::from(compare(cmp, Type::S64, x as u128, y as u128)),
            };
            if self.sat {
                value = value.clamp(low, high);
            }
            if self.accumulate {
                // The sum takes the lane's result as it is before the cut to the lane's width.
                result = result.wrapping_add(value as u32);
            } else {
                result |= (value as u32 & lane_mask) << at;
            }
        }
        result
    }
}
