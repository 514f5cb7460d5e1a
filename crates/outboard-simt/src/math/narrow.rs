//! The 16- and 8-bit floating-point types. Every operation is rounded once.

use crate::math::soft::{Format, Value, convert};
use half::{bf16, f16};
use outboard_ptx::ir::Round;

/// `a * b + c` of half-precision values. The sum is taken in `f64` with rounding to odd, after
/// which rounding to `f16` is as good as a single rounding of the exact value.
pub(crate) fn fma_f16(a: u16, b: u16, c: u16) -> u16 {
    let [a, b, c] = [a, b, c].map(|bits| f64::from(f16::from_bits(bits)));
    canonical_f16(f64_to_f16(odd_sum(a * b, c)))
}

/// `a * b + c` of bfloat16 values.
pub(crate) fn fma_bf16(a: u16, b: u16, c: u16) -> u16 {
    let [a, b, c] = [a, b, c].map(|bits| f64::from(bf16::from_bits(bits)));
    f64_to_bf16(odd_sum(a * b, c))
}

/// `p + c`, rounded to odd: inexact results end in a one, so that a later rounding sees that they
/// are no ties.
fn odd_sum(p: f64, c: f64) -> f64 {
    let sum = p + c;
    if !sum.is_finite() {
        return sum;
    }
    let part = sum - p;
    let error = (p - (sum - part)) + (c - part);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // The exact value lies between `sum` and its neighbour on the side of the error; one of the two
    // is odd, and it is not `sum`.
    if error > 0.0 { sum.next_up() } else { sum.next_down() }
}

/// Rounds to half precision, to nearest.
pub(crate) fn f64_to_f16(x: f64) -> u16 {
    convert(Format::F64, Format::F16, x.to_bits(), Round::NearestEven) as u16
}

/// Rounds to half precision, to nearest.
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    canonical_f16(f16::from_f32(x).to_bits())
}

/// Rounds to bfloat16, to nearest.
pub(crate) fn f64_to_bf16(x: f64) -> u16 {
    convert(Format::F64, Format::BF16, x.to_bits(), Round::NearestEven) as u16
}

pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

fn canonical_f16(bits: u16) -> u16 {
    if bits & 0x7fff > 0x7c00 { 0x7fff } else { bits }
}

/// Rounds to an 8-bit float with 4 exponent and 3 fraction bits. It has no infinities; conversions
/// saturate to its greatest value, 448.
pub(crate) fn f32_to_e4m3(x: f32) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    // The same grid with one exponent more, so that the top binade, which this format uses for
    // numbers, is there.
    let wide = Format { frac: 3, exp: 5, nan: 0 };
    let scaled = f64::from(x.abs()) * f64::exp2(-8.0);
    let bits = convert(Format::F64, wide, scaled.to_bits(), Round::NearestEven);
    // Below the smallest normal number the wide format would keep more digits: there the grid is
    // fixed at 2^-9.
    let bits = if x.abs() < f32::exp2(-6.0) {
        (f64::from(x.abs()) * 512.0).round_ties_even() as u64
    } else {
        bits
    };
    sign | bits.min(0x7e) as u8
}

/// Rounds to an 8-bit float with 5 exponent and 2 fraction bits, saturating to its greatest finite
/// value.
pub(crate) fn f32_to_e5m2(x: f32) -> u8 {
    let bits = convert(Format::F32, Format::E5M2, u64::from(x.to_bits()), Round::NearestEven);
    if x.is_nan() { 0x7f } else { (bits & 0x80 | (bits & 0x7f).min(0x7b)) as u8 }
}

/// The value of an 8-bit float with 4 exponent and 3 fraction bits.
pub(crate) fn e4m3_to_f32(bits: u8) -> f32 {
    let magnitude = match bits & 0x7f {
        0x7f => f32::NAN,
        m if m < 8 => f32::from(m) * f32::exp2(-9.0),
        m => f32::from(8 + (m & 7)) * f32::exp2(f32::from(m >> 3) - 10.0),
    };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

/// The value of an 8-bit float with 5 exponent and 2 fraction bits.
pub(crate) fn e5m2_to_f32(bits: u8) -> f32 {
    f16_to_f32(u16::from(bits) << 8)
}

/// A finite value or infinity of `format` clamped to the greatest finite one, NaN left alone.
pub(crate) fn saturate(format: Format, bits: u64) -> u64 {
    let magnitude = format.infinity();
    let sign = bits & (1 << (format.frac + format.exp));
    match format.unpack(bits) {
        Value::Infinite(_) => sign | (magnitude - 1),
        _ => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::soft;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20000))]

        #[test]
        fn fused_operations_round_once(a in any::<u16>(), b in any::<u16>(), c in any::<u16>()) {
            let exact = |format| soft::fma(format, a.into(), b.into(), c.into(), Round::NearestEven) as u16;
            prop_assert_eq!(fma_f16(a, b, c), exact(Format::F16));
            prop_assert_eq!(fma_bf16(a, b, c), exact(Format::BF16));
        }
    }

    #[test]
    fn bytes_survive_a_round_trip() {
        for bits in 0..=255u8 {
            let x = e4m3_to_f32(bits);
            assert!(x.is_nan() || f32_to_e4m3(x) == bits, "e4m3 {bits:#x} {x}");
            let y = e5m2_to_f32(bits);
            assert!(!y.is_finite() || f32_to_e5m2(y) == bits, "e5m2 {bits:#x} {y}");
        }
        assert_eq!(
            (f32_to_e4m3(1e9), f32_to_e4m3(-448.0), f32_to_e5m2(f32::INFINITY)),
            (0x7e, 0xfe, 0x7b)
        );
        // Ties go to even: 1.0625 lies half way between 1.0 and 1.125.
        assert_eq!((f32_to_e4m3(1.0625), f32_to_e4m3(1.1875)), (0x38, 0x3a));
    }
}
