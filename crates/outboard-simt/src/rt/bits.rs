//! Bit manipulation whose operands are not constants, and the video instructions.

use outboard_ptx::ir::{CmpOp, PrmtMode, VideoOp};

/// The part of a position or length that counts: of the 32-bit forms the low byte, as the manual
/// says; hardware takes the 64-bit forms' operands as they are.
fn effective(width: u32, operand: u32) -> u32 {
    if width == 32 { operand & 0xff } else { operand.min(0xff) }
}

/// Extracts `len` bits from position `pos`. Bits beyond the value repeat its sign (signed) or are
/// zero.
pub(crate) extern "C" fn bfe(width: u32, signed: u32, value: u64, pos: u32, len: u32) -> u64 {
    let (pos, len) = (effective(width, pos), effective(width, len));
    let value = if width == 32 { value & 0xffff_ffff } else { value };
    if len == 0 {
        return 0;
    }
    let top = width - 1;
    let sign = signed != 0 && value >> (pos + len - 1).min(top) & 1 != 0;
    let field = if pos >= width { 0 } else { value >> pos };
    // Bits of the field that lie inside the value.
    let present = len.min(width.saturating_sub(pos));
    let mask = if present >= 64 { u64::MAX } else { (1 << present) - 1 };
    if sign { field & mask | !mask } else { field & mask }
}

/// Inserts the low `len` bits of `a` into `b` at `pos`.
pub(crate) extern "C" fn bfi(width: u32, a: u64, b: u64, pos: u32, len: u32) -> u64 {
    let (pos, len) = (effective(width, pos), effective(width, len));
    if pos >= width || len == 0 {
        return b;
    }
    let len = len.min(width - pos);
    let mask = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    b & !(mask << pos) | (a & mask) << pos
}

/// Position of the highest bit that differs from the sign (signed) or is set, or all ones.
pub(crate) extern "C" fn bfind(width: u32, signed: u32, shiftamt: u32, value: u64) -> u32 {
    let up = 64 - width;
    let value = if signed != 0 {
        let value = ((value << up) as i64) >> up;
        (if value < 0 { !value } else { value }) as u64
    } else {
        value << up >> up
    };
    if value == 0 {
        return u32::MAX;
    }
    let position = 63 - value.leading_zeros();
    if shiftamt != 0 { width - 1 - position } else { position }
}

/// Position of the n-th set bit of `mask` counted from `base`, up or (negative `offset`) down.
pub(crate) extern "C" fn fns(mask: u32, base: u32, offset: u32) -> u32 {
    let (base, offset) = (base & 31, offset as i32);
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { u32::MAX };
    }
    let mut left = offset.unsigned_abs();
    let mut position = base as i32;
    while (0..32).contains(&position) {
        if mask >> position & 1 != 0 {
            left -= 1;
            if left == 0 {
                return position as u32;
            }
        }
        position += offset.signum();
    }
    u32::MAX
}

/// A mask of `len` bits from position `pos`; operands clamp at 32 or wrap.
pub(crate) extern "C" fn bmsk(wrap: u32, pos: u32, len: u32) -> u32 {
    let (pos, len) = if wrap != 0 { (pos & 31, len & 31) } else { (pos.min(32), len.min(32)) };
    let mask = ((1u64 << len) - 1) << pos;
    mask as u32
}

/// Extends the low `bits` bits of `value`; the count clamps at 32 or wraps.
pub(crate) extern "C" fn szext(wrap: u32, signed: u32, value: u32, bits: u32) -> u32 {
    let bits = if wrap != 0 { bits & 31 } else { bits.min(32) };
    if bits == 0 {
        return 0;
    }
    let up = 32 - bits;
    if signed != 0 { ((value << up) as i32 >> up) as u32 } else { value << up >> up }
}

/// Byte permutation of `b:a` by selector `c`.
pub(crate) fn permute(mode: PrmtMode, a: u32, b: u32, c: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let select = |selectors: [u32; 4]| {
        let mut result = [0u8; 4];
        for (byte, selector) in result.iter_mut().zip(selectors) {
            let value = bytes[(selector & 7) as usize];
            *byte = if selector & 8 == 0 { value } else { ((value as i8) >> 7) as u8 };
        }
        u32::from_le_bytes(result)
    };
    let n = c & 3;
    select(match mode {
        PrmtMode::Generic => [c, c >> 4, c >> 8, c >> 12].map(|s| s & 15),
        PrmtMode::F4e => [n, n + 1, n + 2, n + 3],
        PrmtMode::B4e => [n, n.wrapping_sub(1) & 7, n.wrapping_sub(2) & 7, n.wrapping_sub(3) & 7],
        PrmtMode::Rc8 => [n; 4],
        PrmtMode::Ecl => [0, 1, 2, 3].map(|i: u32| i.max(n)),
        PrmtMode::Ecr => [0, 1, 2, 3].map(|i: u32| i.min(n)),
        PrmtMode::Rc16 => {
            let low = (n & 1) * 2;
            [low, low + 1, low, low + 1]
        }
    })
}

const PRMT_MODES: [PrmtMode; 7] = [
    PrmtMode::Generic,
    PrmtMode::F4e,
    PrmtMode::B4e,
    PrmtMode::Rc8,
    PrmtMode::Ecl,
    PrmtMode::Ecr,
    PrmtMode::Rc16,
];

/// Number of a permutation mode.
pub(crate) fn prmt_code(mode: PrmtMode) -> u32 {
    PRMT_MODES.iter().position(|&m| m == mode).unwrap_or(0) as u32
}

pub(crate) extern "C" fn prmt(mode: u32, a: u32, b: u32, c: u32) -> u32 {
    permute(PRMT_MODES[mode as usize % PRMT_MODES.len()], a, b, c)
}

/// A video instruction, packed into one word for the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Video {
    pub(crate) op: VideoOp,
    pub(crate) lanes: u8,
    pub(crate) d_signed: bool,
    pub(crate) a_signed: bool,
    pub(crate) b_signed: bool,
    pub(crate) sat: bool,
    pub(crate) accumulate: bool,
    pub(crate) mask: u8,
    pub(crate) a_sel: [u8; 4],
    pub(crate) b_sel: [u8; 4],
}

const COMPARES: [CmpOp; 6] = [CmpOp::Eq, CmpOp::Ne, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge];

impl Video {
    pub(crate) fn encode(self) -> u64 {
        let op = match self.op {
            VideoOp::Add => 0,
            VideoOp::Sub => 1,
            VideoOp::Avrg => 2,
            VideoOp::Absdiff => 3,
            VideoOp::Min => 4,
            VideoOp::Max => 5,
            VideoOp::Set(cmp) => 8 + COMPARES.iter().position(|&c| c == cmp).unwrap_or(0) as u64,
        };
        let flags = [self.d_signed, self.a_signed, self.b_signed, self.sat, self.accumulate];
        let mut code = op | u64::from(self.lanes) << 4 | u64::from(self.mask & 15) << 8;
        for (i, flag) in flags.into_iter().enumerate() {
            code |= u64::from(flag) << (12 + i);
        }
        for i in 0..4 {
            code |= u64::from(self.a_sel[i] & 7) << (20 + 4 * i)
                | u64::from(self.b_sel[i] & 7) << (36 + 4 * i);
        }
        code
    }
}

/// Runs the instruction that [`Video::encode`] described.
pub(crate) extern "C" fn video(code: u64, a: u32, b: u32, c: u32) -> u32 {
    let flag = |i: u32| code >> (12 + i) & 1 != 0;
    let lanes = ((code >> 4 & 15) as u32).clamp(1, 4);
    let bits = 32 / lanes;
    let mask = (1u64 << bits) - 1;
    let pair = u64::from(b) << 32 | u64::from(a);
    let lane = |selector: u64, signed: bool| {
        let raw = pair >> (selector as u32 * bits) & mask;
        if signed { ((raw << (64 - bits)) as i64) >> (64 - bits) } else { raw as i64 }
    };
    let (mut packed, mut sum) = (c, c);
    for i in 0..lanes {
        let x = lane(code >> (20 + 4 * i) & 7, flag(1));
        let y = lane(code >> (36 + 4 * i) & 7, flag(2));
        let value = match code & 15 {
            0 => x + y,
            1 => x - y,
            // Rounds halves away from zero, as the manual's formula does.
            2 => (x + y + i64::from(x + y >= 0)) >> 1,
            3 => (x - y).abs(),
            4 => x.min(y),
            5 => x.max(y),
            8 => i64::from(x == y),
            9 => i64::from(x != y),
            10 => i64::from(x < y),
            11 => i64::from(x <= y),
            12 => i64::from(x > y),
            _ => i64::from(x >= y),
        };
        let (low, high) = if flag(0) {
            (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1)
        } else {
            (0, mask as i64)
        };
        let value = if flag(3) { value.clamp(low, high) } else { value };
        if code >> (8 + i) & 1 != 0 {
            sum = sum.wrapping_add(value as u32);
            let field = (mask as u32) << (i * bits);
            packed = packed & !field | (value as u32) << (i * bits) & field;
        }
    }
    if flag(4) { sum } else { packed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        assert_eq!(bfe(32, 0, 0xabcd_1234, 8, 8), 0x12);
        assert_eq!(bfe(32, 1, 0x0000_f000, 12, 4) as u32, u32::MAX);
        assert_eq!(bfe(32, 1, 0x8000_0000, 40, 4) as u32, u32::MAX);
        assert_eq!(bfe(32, 1, 0x8000_0000, 28, 8) as u32, 0xffff_fff8);
        assert_eq!(bfe(64, 0, u64::MAX, 0, 64), u64::MAX);
        assert_eq!(bfi(32, 0xf, 0, 4, 2), 0x30);
        assert_eq!(bfi(64, 0xff, 0, 60, 8), 0xf << 60);
        assert_eq!(
            (bfind(32, 0, 0, 0), bfind(32, 0, 0, 0x100), bfind(32, 1, 0, 0xffff_fffe)),
            (u32::MAX, 8, 0)
        );
        assert_eq!(bfind(32, 0, 1, 0x100), 23);
        assert_eq!((fns(0b1010, 0, 2), fns(0b1010, 3, -2i32 as u32), fns(0b1010, 1, 0)), (3, 1, 1));
        assert_eq!((bmsk(0, 4, 4), bmsk(0, 0, 40), bmsk(1, 33, 33)), (0xf0, u32::MAX, 2));
        assert_eq!((szext(0, 1, 0x80, 8), szext(0, 0, 0x1ff, 8)), (0xffff_ff80, 0xff));
    }

    #[test]
    fn permutations() {
        let (a, b) = (0x0302_0100, 0x8706_0504);
        assert_eq!(permute(PrmtMode::Generic, a, b, 0x7654), b);
        assert_eq!(permute(PrmtMode::Generic, a, b, 0xf000), 0xff00_0000);
        assert_eq!(permute(PrmtMode::F4e, a, b, 1), 0x0403_0201);
        assert_eq!(permute(PrmtMode::B4e, a, b, 1), 0x0687_0001);
        assert_eq!(permute(PrmtMode::Rc8, a, b, 2), 0x0202_0202);
        assert_eq!(permute(PrmtMode::Ecl, a, b, 2), 0x0302_0202);
        assert_eq!(permute(PrmtMode::Ecr, a, b, 2), 0x0202_0100);
        assert_eq!(permute(PrmtMode::Rc16, a, b, 1), 0x0302_0302);
    }

    #[test]
    fn absolute_differences_of_bytes() {
        let code = Video {
            op: VideoOp::Absdiff,
            lanes: 4,
            d_signed: false,
            a_signed: false,
            b_signed: false,
            sat: false,
            accumulate: true,
            mask: 15,
            a_sel: [0, 1, 2, 3],
            b_sel: [4, 5, 6, 7],
        }
        .encode();
        assert_eq!(video(code, 0x01ff_0310, 0x0200_0500, 100), 100 + 1 + 255 + 2 + 16);
    }
}
