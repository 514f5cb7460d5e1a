//! Every operation in every rounding mode, compared with `rustc_apfloat`, the compiler's own
//! arithmetic.

use super::*;
use crate::math::narrow;
use proptest::prelude::*;
use rustc_apfloat::ieee::{
    BFloat, Double, Float8E4M3FN, Float8E5M2, Half, IeeeFloat, Quad, Semantics, Single,
};
use rustc_apfloat::{Float, FloatConvert};

struct Tf32;

impl Semantics for Tf32 {
    const BITS: usize = 19;
    const EXP_BITS: usize = 8;
}

const MODES: [(Round, rustc_apfloat::Round); 5] = [
    (Round::NearestEven, rustc_apfloat::Round::NearestTiesToEven),
    (Round::NearestAway, rustc_apfloat::Round::NearestTiesToAway),
    (Round::Zero, rustc_apfloat::Round::TowardZero),
    (Round::Down, rustc_apfloat::Round::TowardNegative),
    (Round::Up, rustc_apfloat::Round::TowardPositive),
];

/// The bits of a result. The NaN is the one that these operands give on a device.
fn bits<S: Semantics>(format: Format, operands: &[u64], result: IeeeFloat<S>) -> u64 {
    let read = |bits: u64| IeeeFloat::<S>::from_bits(bits.into());
    match operands.iter().find(|operand| read(**operand).is_nan()) {
        Some(nan) if format == Format::F64 => nan | 1 << 51,
        Some(_) => format.nan,
        None if result.is_nan() => format.nan,
        None => result.to_bits() as u64,
    }
}

fn check_operations<S: Semantics>(format: Format, [a, b, c]: [u64; 3]) {
    let [x, y, z] = [a, b, c].map(|bits| IeeeFloat::<S>::from_bits(bits.into()));
    for (round, theirs) in MODES {
        let expected = [
            (Binary::Add, x.add_r(y, theirs).value),
            (Binary::Sub, x.sub_r(y, theirs).value),
            (Binary::Mul, x.mul_r(y, theirs).value),
            (Binary::Div, x.div_r(y, theirs).value),
        ];
        for (op, value) in expected {
            let ours = binary(format, op, a, b, round);
            assert_eq!(ours, bits(format, &[a, b], value), "{a:#x} {op:?} {b:#x} {round:?}");
        }
        let value = x.mul_add_r(y, z, theirs).value;
        let ours = fma(format, a, b, c, round);
        assert_eq!(ours, bits(format, &[a, b, c], value), "{a:#x} * {b:#x} + {c:#x} {round:?}");
    }
}

/// A square of at most 106 bits is exact in [`Quad`].
fn check_root<S: Semantics>(format: Format, a: u64) {
    let quad = |bits: u64| -> Quad {
        let value = IeeeFloat::<S>::from_bits(bits.into());
        FloatConvert::<Quad>::convert(value, &mut false).value
    };
    let value = IeeeFloat::<S>::from_bits(a.into());
    let [down, up, zero] =
        [Round::Down, Round::Up, Round::Zero].map(|round| sqrt(format, a, round));
    if value.is_nan() || value.is_negative() || value.is_infinite() || value.is_zero() {
        let special = if value.is_nan() || value.is_negative() && !value.is_zero() {
            bits(format, &[a], IeeeFloat::<S>::NAN)
        } else {
            a
        };
        assert_eq!([down, up, zero], [special; 3], "the root of {a:#x}");
        return;
    }
    let square = |root: u64| (quad(root) * quad(root)).value;
    let exact = down == up;
    assert!(exact || down + 1 == up, "the root of {a:#x}: {down:#x} {up:#x}");
    assert_eq!(zero, down);
    if exact {
        assert_eq!(square(down), quad(a), "the root of {a:#x}");
    } else {
        assert!(square(down) < quad(a) && quad(a) < square(up), "the root of {a:#x}");
    }
}

fn check_conversion<S: Semantics, T: Semantics>(from: Format, to: Format, a: u64) {
    for (round, theirs) in MODES {
        let value = IeeeFloat::<S>::from_bits(a.into());
        let converted: IeeeFloat<T> = value.convert_r(theirs, &mut false).value;
        let expected = if value.is_nan() { to.nan } else { converted.to_bits() as u64 };
        assert_eq!(convert(from, to, a, round), expected, "{a:#x} {from:?} {to:?} {round:?}");
    }
}

fn check_integer<S: Semantics>(format: Format, negative: bool, magnitude: u64) {
    for (round, theirs) in MODES {
        let value = i128::from(magnitude) * if negative { -1 } else { 1 };
        let expected = IeeeFloat::<S>::from_i128_r(value, theirs).value.to_bits() as u64;
        assert_eq!(from_int(format, negative, magnitude, round), expected, "{value} {round:?}");
    }
}

/// To an 8-bit format that overflows to its greatest finite value.
fn check_byte<T: Semantics>(ours: u8, x: u32, nan: u8, greatest: u8) {
    let value = Single::from_bits(x.into());
    let converted: IeeeFloat<T> = value.convert(&mut false).value;
    let expected = if value.is_nan() {
        nan
    } else if converted.is_finite() {
        converted.to_bits() as u8
    } else {
        u8::from(value.is_negative()) << 7 | greatest
    };
    assert_eq!(ours, expected, "{x:#x}");
}

type Sem<T> = <T as Described>::Semantics;

/// The parameters of a float of the other crate.
trait Described {
    type Semantics: Semantics;
}

impl<S: Semantics> Described for IeeeFloat<S> {
    type Semantics = S;
}

#[test]
fn all_pairs_of_bytes() {
    for a in 0..=255 {
        for b in 0..=255 {
            check_operations::<Sem<Float8E5M2>>(Format::E5M2, [a, b, a ^ b]);
        }
        check_root::<Sem<Float8E5M2>>(Format::E5M2, a);
    }
}

#[test]
fn all_conversions_of_halves() {
    for a in 0..=0xffff {
        check_conversion::<Sem<Half>, Sem<Float8E5M2>>(Format::F16, Format::E5M2, a);
        check_conversion::<Sem<Half>, Sem<BFloat>>(Format::F16, Format::BF16, a);
        check_conversion::<Sem<Half>, Sem<Single>>(Format::F16, Format::F32, a);
        check_conversion::<Sem<BFloat>, Sem<Half>>(Format::BF16, Format::F16, a);
        check_conversion::<Sem<BFloat>, Sem<Single>>(Format::BF16, Format::F32, a);
        check_root::<Sem<Half>>(Format::F16, a);
        check_root::<Sem<BFloat>>(Format::BF16, a);
    }
}

/// Rounding to a byte looks at seven bits of the fraction at most, and at whether there is more.
#[test]
fn all_bytes_of_singles() {
    for upper in 0..=0xffff_u32 {
        for lower in [0, 1, 0x8000, 0xffff] {
            let bits = upper << 16 | lower;
            let x = f32::from_bits(bits);
            check_byte::<Sem<Float8E4M3FN>>(narrow::f32_to_e4m3(x), bits, 0x7f, 0x7e);
            check_byte::<Sem<Float8E5M2>>(narrow::f32_to_e5m2(x), bits, 0x7f, 0x7b);
        }
    }
    for byte in 0..=255_u8 {
        let wide: Single = Float8E4M3FN::from_bits(byte.into()).convert(&mut false).value;
        let ours = narrow::e4m3_to_f32(byte);
        assert!(wide.is_nan() && ours.is_nan() || wide.to_bits() == ours.to_bits().into());
    }
}

/// Bits with many subnormal, infinite, undefined and neighbouring values among them.
fn value(format: Format) -> impl Strategy<Value = u64> {
    let width = format.frac + format.exp + 1;
    let mask = u64::MAX >> (64 - width);
    let (sign, top) = (1_u64 << (width - 1), (1_u64 << format.exp) - 1);
    let place = move |sign: u64, exponent: u64, fraction: u64| {
        sign << (width - 1) | exponent << format.frac | fraction & ((1 << format.frac) - 1)
    };
    let middle = top / 2;
    prop_oneof![
        3 => any::<u64>().prop_map(move |bits| bits & mask),
        3 => (0..2_u64, middle - 4..middle + 5, any::<u64>()).prop_map(move |(s, e, f)| place(s, e, f)),
        2 => (0..2_u64, 0..2_u64, any::<u64>()).prop_map(move |(s, e, f)| place(s, e, f)),
        1 => (0..2_u64, top - 1..=top, any::<u64>()).prop_map(move |(s, e, f)| place(s, e, f)),
        1 => (0..2_u64, 0..=top, 0..3_u64).prop_map(move |(s, e, f)| place(s, e, f.wrapping_sub(1))),
        1 => prop::sample::select(vec![0, sign, format.infinity(), format.infinity() | sign, format.nan & mask]),
    ]
}

fn three(format: Format) -> impl Strategy<Value = [u64; 3]> {
    [value(format), value(format), value(format)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn operations_agree(
        half in three(Format::F16),
        bfloat in three(Format::BF16),
        single in three(Format::F32),
        double in three(Format::F64),
    ) {
        check_operations::<Sem<Half>>(Format::F16, half);
        check_operations::<Sem<BFloat>>(Format::BF16, bfloat);
        check_operations::<Sem<Single>>(Format::F32, single);
        check_operations::<Sem<Double>>(Format::F64, double);
        check_root::<Sem<Single>>(Format::F32, single[0]);
        check_root::<Sem<Double>>(Format::F64, double[0]);
        let [a, b, c] = half.map(|bits| bits as u16);
        prop_assert_eq!(u64::from(narrow::fma_f16(a, b, c)), fma(Format::F16, half[0], half[1], half[2], Round::NearestEven));
        let [a, b, c] = bfloat.map(|bits| bits as u16);
        prop_assert_eq!(u64::from(narrow::fma_bf16(a, b, c)), fma(Format::BF16, bfloat[0], bfloat[1], bfloat[2], Round::NearestEven));
    }

    #[test]
    fn conversions_agree(single in value(Format::F32), double in value(Format::F64), shift in 0..64, number in any::<u64>(), negative: bool) {
        check_conversion::<Sem<Single>, Sem<Half>>(Format::F32, Format::F16, single);
        check_conversion::<Sem<Single>, Sem<BFloat>>(Format::F32, Format::BF16, single);
        check_conversion::<Sem<Single>, Tf32>(Format::F32, Format::TF32, single);
        check_conversion::<Sem<Single>, Sem<Float8E5M2>>(Format::F32, Format::E5M2, single);
        check_conversion::<Sem<Single>, Sem<Double>>(Format::F32, Format::F64, single);
        check_conversion::<Sem<Double>, Sem<Half>>(Format::F64, Format::F16, double);
        check_conversion::<Sem<Double>, Sem<BFloat>>(Format::F64, Format::BF16, double);
        check_conversion::<Sem<Double>, Sem<Single>>(Format::F64, Format::F32, double);
        let number = number >> shift;
        // There is no zero of an integer that is less than none.
        let negative = negative && number != 0;
        check_integer::<Sem<Half>>(Format::F16, negative, number);
        check_integer::<Sem<BFloat>>(Format::BF16, negative, number);
        check_integer::<Sem<Single>>(Format::F32, negative, number);
        check_integer::<Sem<Double>>(Format::F64, negative, number);
    }
}
