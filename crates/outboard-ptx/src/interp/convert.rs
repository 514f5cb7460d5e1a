//! Conversions between number formats.

use num_bigint::BigUint;

use super::int::{signed, unsigned};
use super::soft::{Format, Number};
use crate::ir::Round;
use crate::types::Type;

/// The modifiers of `cvt`.
#[derive(Clone, Copy)]
pub(super) struct Conversion {
    pub(super) dst_ty: Type,
    pub(super) src_ty: Type,
    pub(super) round: Option<Round>,
    pub(super) int_round: Option<Round>,
    pub(super) ftz: bool,
    pub(super) sat: bool,
    pub(super) satfinite: bool,
    pub(super) relu: bool,
}

fn value(ty: Type, bits: u128) -> i128 {
    if ty.is_signed() { signed(ty, bits) } else { unsigned(ty, bits) as i128 }
}

/// The least and greatest value of an integer type.
pub(super) fn range(ty: Type) -> (i128, i128) {
    match ty.is_signed() {
        true => (-(1 << (ty.bits() - 1)), (1 << (ty.bits() - 1)) - 1),
        false => (0, (1 << ty.bits()) - 1),
    }
}

impl Conversion {
    pub(super) fn apply(self, a: u128) -> u128 {
        let Conversion { dst_ty, src_ty, .. } = self;
        match (dst_ty.is_integer(), src_ty.is_integer()) {
            (true, true) => {
                let source = value(src_ty, a);
                let (low, high) = range(dst_ty);
                let result = if self.sat { source.clamp(low, high) } else { source };
                result as u128
            }
            (true, false) => self.to_integer(a as u64),
            (false, true) => {
                let format = Format::of(dst_ty);
                let bits = format.encode(
                    &Number::integer(value(src_ty, a)),
                    self.round.unwrap_or(Round::NearestEven),
                );
                u128::from(self.finish(format, bits))
            }
            (false, false) => u128::from(self.to_float(a)),
        }
    }

    fn flush(self, ty: Type, bits: u64) -> u64 {
        // `.ftz` is about f32 only.
        if self.ftz && ty == Type::F32 { Format::of(ty).flush(bits) } else { bits }
    }

    fn to_integer(self, a: u64) -> u128 {
        let Conversion { dst_ty, src_ty, .. } = self;
        let number = Format::of(src_ty).decode(self.flush(src_ty, a));
        let Some((negative, magnitude)) = number.to_integer(self.int_round.unwrap_or(Round::Zero))
        else {
            // NaN.
            let zero = src_ty != Type::F64 && dst_ty.size() < 8;
            return if zero { 0 } else { 1 << (dst_ty.bits() - 1) };
        };
        let (low, high) = range(dst_ty);
        let limit = if negative { low.unsigned_abs() } else { high.unsigned_abs() };
        let clamped = magnitude.min(BigUint::from(limit));
        let magnitude = u128::try_from(&clamped).unwrap_or(limit) as i128;
        (if negative { -magnitude } else { magnitude }) as u128
    }

    fn to_float(self, a: u128) -> u64 {
        let Conversion { dst_ty, src_ty, .. } = self;
        // Pairs of small floats.
        if matches!(dst_ty, Type::E4m3x2 | Type::E5m2x2) {
            let lane = |bits: u128| self.narrow(Format::of(Type::F16), bits as u64 & 0xffff);
            return lane(a) | (lane(a >> 16) << 8);
        }
        if matches!(src_ty, Type::E4m3x2 | Type::E5m2x2) {
            let from = if src_ty == Type::E4m3x2 { Format::E4M3 } else { Format::E5M2 };
            let to = Format::of(Type::F16);
            let lane = |bits: u128| {
                let wide = to.encode(&from.decode(bits as u64 & 0xff), Round::NearestEven);
                if self.relu && to.is_negative(wide) && !to.is_nan(wide) { 0 } else { wide }
            };
            return lane(a) | (lane(a >> 8) << 16);
        }
        if dst_ty == Type::Tf32 {
            // Narrow as TF32, kept in the upper bits of an f32.
            let from = Format::of(Type::F32);
            return self.narrow(from, a as u64) << 13;
        }
        let a = self.flush(src_ty, a as u64);
        let (from, to) = (Format::of(src_ty), Format::of(dst_ty));
        if let Some(round) = self.int_round {
            let number = from.decode(a);
            let bits = match number {
                Number::Finite { .. } => {
                    let (negative, magnitude) =
                        number.to_integer(round).unwrap_or((false, BigUint::ZERO));
                    to.encode(
                        &Number::Finite { negative, magnitude, exponent: 0 },
                        Round::NearestEven,
                    )
                }
                other => to.encode(&other, Round::NearestEven),
            };
            return self.finish(to, bits);
        }
        let bits = to.encode(&from.decode(a), self.round.unwrap_or(Round::NearestEven));
        let bits = if self.satfinite { saturated(to, &from.decode(a), bits) } else { bits };
        self.finish(to, bits)
    }

    fn finish(self, format: Format, bits: u64) -> u64 {
        let bits = self.flush(self.dst_ty, bits);
        if format.is_nan(bits) {
            return if self.sat { 0 } else { format.nan() };
        }
        if self.sat {
            let one = format.encode(&Number::integer(1), Round::NearestEven);
            return if format.is_negative(bits) { 0 } else { bits.min(one) };
        }
        if self.relu && format.is_negative(bits) { 0 } else { bits }
    }

    /// To tf32 or one of the 8-bit formats.
    fn narrow(self, from: Format, bits: u64) -> u64 {
        let to = match self.dst_ty {
            Type::E4m3x2 => Format::E4M3,
            Type::E5m2x2 => Format::E5M2,
            _ => Format::TF32,
        };
        let number = from.decode(bits);
        let narrow = to.encode(&number, self.round.unwrap_or(Round::NearestEven));
        let narrow = if self.satfinite { saturated(to, &number, narrow) } else { narrow };
        if self.relu && to.is_negative(narrow) && !to.is_nan(narrow) { 0 } else { narrow }
    }
}

/// `.satfinite`: what overflows becomes the greatest finite number, NaN stays.
fn saturated(format: Format, number: &Number, bits: u64) -> u64 {
    match number {
        Number::Nan => format.nan(),
        Number::Infinity { negative } => format.max_finite(*negative),
        Number::Finite { negative: sign, .. } => {
            if matches!(format.decode(bits), Number::Finite { .. }) {
                bits
            } else {
                format.max_finite(*sign)
            }
        }
    }
}

/// `cvt` of two f32 values into one packed value; `a` becomes the upper lane.
pub(super) fn pair(
    dst_ty: Type,
    round: Round,
    satfinite: bool,
    relu: bool,
    a: u64,
    b: u64,
) -> u128 {
    let small = matches!(dst_ty, Type::E4m3x2 | Type::E5m2x2);
    let width = if small { 8 } else { 16 };
    let conversion = Conversion {
        dst_ty: if small { dst_ty } else { dst_ty.lane() },
        src_ty: Type::F32,
        round: Some(round),
        int_round: None,
        ftz: false,
        sat: false,
        satfinite,
        relu,
    };
    let lane = |bits: u64| match small {
        true => conversion.narrow(Format::of(Type::F32), bits),
        false => conversion.to_float(u128::from(bits)),
    };
    u128::from(lane(b) | (lane(a) << width))
}

/// `cvt.pack.sat`
pub(super) fn pack(dst_ty: Type, src_ty: Type, a: u128, b: u128, c: Option<u128>) -> u128 {
    let (low, high) = range(dst_ty);
    let clamp =
        |bits: u128| (value(src_ty, bits).clamp(low, high) as u128) & ((1 << dst_ty.bits()) - 1);
    let width = dst_ty.bits();
    let pair = (clamp(a) << width) | clamp(b);
    match c {
        None => pair,
        Some(c) => (pair | (c << (2 * width))) & 0xffff_ffff,
    }
}
