//! Floating-point operations on bit patterns.

use super::soft::{Format, Number};
use crate::ir::{CmpOp, FloatBinOp, FloatMods, FloatUnOp, Round, TestpOp};
use crate::types::Type;

/// Applies `lane` to each lane of a packed type, or once.
pub(super) fn lanes<const N: usize>(
    ty: Type,
    values: [u128; N],
    mut lane: impl FnMut([u64; N]) -> u64,
) -> u128 {
    let width = ty.lane().bits();
    let mask = (1u128 << width) - 1;
    let count = ty.bits() / width;
    (0..count).fold(0, |all, index| {
        let shift = index * width;
        let inputs = values.map(|value| ((value >> shift) & mask) as u64);
        all | (u128::from(lane(inputs)) << shift)
    })
}

fn flushed(format: Format, mods: FloatMods, bits: u64) -> u64 {
    if mods.ftz { format.flush(bits) } else { bits }
}

/// What `.ftz`, `.sat` and `.relu` make of a result.
fn finished(format: Format, mods: FloatMods, bits: u64) -> u64 {
    let bits = flushed(format, mods, bits);
    let negative = format.is_negative(bits);
    if format.is_nan(bits) {
        return if mods.sat { 0 } else { format.nan() };
    }
    if mods.sat {
        let one = format.encode(&Number::integer(1), Round::NearestEven);
        return if negative { 0 } else { bits.min(one) };
    }
    if mods.relu && negative { 0 } else { bits }
}

pub(super) fn binary(op: FloatBinOp, ty: Type, mods: FloatMods, a: u64, b: u64) -> u64 {
    let format = Format::of(ty);
    let (a, b) = (flushed(format, mods, a), flushed(format, mods, b));
    if matches!(op, FloatBinOp::Min | FloatBinOp::Max) {
        return min_max(op == FloatBinOp::Max, format, mods, a, b);
    }
    let (x, y) = (format.decode(a), format.decode(b));
    let exact = match op {
        FloatBinOp::Add => x.add(&y, mods.round),
        FloatBinOp::Sub => x.add(&y.negated(), mods.round),
        FloatBinOp::Mul => x.mul(&y),
        _ => x.div(&y),
    };
    finished(format, mods, format.encode(&exact, mods.round))
}

fn min_max(max: bool, format: Format, mods: FloatMods, a: u64, b: u64) -> u64 {
    let sign = format.is_negative(a) != format.is_negative(b);
    let (a, b) = if mods.xorsign_abs {
        (format.with_sign(a, false), format.with_sign(b, false))
    } else {
        (a, b)
    };
    let result = match (format.is_nan(a), format.is_nan(b)) {
        (true, true) => return format.nan(),
        (true, false) | (false, true) if mods.nan => return format.nan(),
        (true, false) => b,
        (false, true) => a,
        // As sign-magnitude integers, so that -0 is below +0.
        (false, false) => {
            let key = |bits: u64| {
                let magnitude = format.with_sign(bits, false) as i64;
                if format.is_negative(bits) { -magnitude - 1 } else { magnitude }
            };
            if (key(a) >= key(b)) == max { a } else { b }
        }
    };
    if mods.xorsign_abs { format.with_sign(result, sign) } else { result }
}

pub(super) fn fma(ty: Type, mods: FloatMods, a: u64, b: u64, c: u64) -> u64 {
    let format = Format::of(ty);
    let [x, y, z] = [a, b, c].map(|bits| format.decode(flushed(format, mods, bits)));
    let exact = x.mul(&y).add(&z, mods.round);
    finished(format, mods, format.encode(&exact, mods.round))
}

pub(super) fn unary(op: FloatUnOp, ty: Type, mods: FloatMods, a: u64) -> u64 {
    let format = Format::of(ty);
    let a = flushed(format, mods, a);
    let number = format.decode(a);
    let exact = match op {
        // Only the sign changes; NaNs may keep their payload.
        FloatUnOp::Neg => return format.with_sign(a, !format.is_negative(a)),
        FloatUnOp::Abs => return format.with_sign(a, false),
        FloatUnOp::Rcp | FloatUnOp::RcpApprox => Number::integer(1).div(&number),
        FloatUnOp::Sqrt | FloatUnOp::SqrtApprox => number.sqrt(),
        FloatUnOp::RsqrtApprox => Number::integer(1).div(&number.sqrt()),
        FloatUnOp::SinApprox => by_machine(format, a, f64::sin),
        FloatUnOp::CosApprox => by_machine(format, a, f64::cos),
        FloatUnOp::Ex2Approx => by_machine(format, a, f64::exp2),
        FloatUnOp::Lg2Approx => by_machine(format, a, f64::log2),
        FloatUnOp::TanhApprox => by_machine(format, a, f64::tanh),
    };
    finished(format, mods, format.encode(&exact, mods.round))
}

/// A transcendental function, far more precise than the approximations it stands for.
fn by_machine(format: Format, a: u64, function: impl Fn(f64) -> f64) -> Number {
    let double = Format::of(Type::F64);
    let wide = f64::from_bits(double.encode(&format.decode(a), Round::NearestEven));
    double.decode(function(wide).to_bits())
}

/// How two patterns compare; `None` if one is NaN.
fn order(format: Format, a: u64, b: u64) -> Option<std::cmp::Ordering> {
    let wide = |bits: u64| {
        f64::from_bits(Format::of(Type::F64).encode(&format.decode(bits), Round::NearestEven))
    };
    wide(a).partial_cmp(&wide(b))
}

pub(super) fn compare(cmp: CmpOp, ty: Type, ftz: bool, a: u64, b: u64) -> bool {
    let format = Format::of(ty);
    let mods = FloatMods { ftz, ..FloatMods::DEFAULT };
    let found = order(format, flushed(format, mods, a), flushed(format, mods, b));
    let unordered =
        matches!(cmp, CmpOp::Equ | CmpOp::Neu | CmpOp::Ltu | CmpOp::Leu | CmpOp::Gtu | CmpOp::Geu);
    match (cmp, found) {
        (CmpOp::Num, found) => found.is_some(),
        (CmpOp::Nan, found) => found.is_none(),
        (_, None) => unordered,
        (_, Some(found)) => match cmp {
            CmpOp::Eq | CmpOp::Equ => found.is_eq(),
            CmpOp::Ne | CmpOp::Neu => found.is_ne(),
            CmpOp::Lt | CmpOp::Ltu => found.is_lt(),
            CmpOp::Le | CmpOp::Leu => found.is_le(),
            CmpOp::Gt | CmpOp::Gtu => found.is_gt(),
            _ => found.is_ge(),
        },
    }
}

pub(super) fn testp(op: TestpOp, ty: Type, a: u64) -> bool {
    let format = Format::of(ty);
    let number = format.decode(a);
    let finite = matches!(number, Number::Finite { .. });
    match op {
        TestpOp::Finite => finite,
        TestpOp::Infinite => matches!(number, Number::Infinity { .. }),
        TestpOp::Number => !matches!(number, Number::Nan),
        TestpOp::NotANumber => matches!(number, Number::Nan),
        TestpOp::Normal => finite && !format.is_subnormal(a),
        TestpOp::Subnormal => format.is_subnormal(a),
    }
}

pub(super) fn copysign(ty: Type, a: u64, b: u64) -> u64 {
    let format = Format::of(ty);
    format.with_sign(b, format.is_negative(a))
}
