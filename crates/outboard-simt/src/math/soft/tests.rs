use super::*;
use proptest::prelude::*;

const MODES: [Round; 4] = [Round::NearestEven, Round::Zero, Round::Down, Round::Up];

/// Bit patterns with many special and neighbouring values among them.
fn f32_bits() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => any::<u32>(),
        2 => (any::<bool>(), 118u32..136, any::<u32>()).prop_map(|(s, e, f)| u32::from(s) << 31 | e << 23 | f & 0x7f_ffff),
        1 => (any::<bool>(), 0u32..0xff_ffff).prop_map(|(s, f)| u32::from(s) << 31 | f),
        1 => prop_oneof![Just(0), Just(1 << 31), Just(0x7f80_0000), Just(0xff80_0000), Just(0x7fc0_0000), Just(0x3f80_0000)],
    ]
}

fn f64_bits() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => any::<u64>(),
        2 => (any::<bool>(), 990u64..1060, any::<u64>())
            .prop_map(|(s, e, f)| u64::from(s) << 63 | e << 52 | f & 0xf_ffff_ffff_ffff),
        1 => (any::<bool>(), 0u64..0x1f_ffff_ffff_ffff).prop_map(|(s, f)| u64::from(s) << 63 | f),
    ]
}

fn same32(ours: u64, native: f32) -> bool {
    if native.is_nan() { ours == Format::F32.nan } else { ours == u64::from(native.to_bits()) }
}

fn same64(ours: u64, native: f64) -> bool {
    if native.is_nan() { f64::from_bits(ours).is_nan() } else { ours == native.to_bits() }
}

/// Directed results enclose the nearest one, are neighbours or equal, and `exact` says which.
fn encloses(results: [u64; 4], exact: bool, read: impl Fn(u64) -> f64) {
    let [nearest, zero, down, up] = results.map(read);
    if nearest.is_nan() {
        return;
    }
    assert!(down <= nearest && nearest <= up, "{down} {nearest} {up}");
    assert_eq!(down.to_bits() == up.to_bits() || down == up, exact, "{down:e} {up:e}");
    assert_eq!(zero, if up > 0.0 { down } else { up });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn nearest_f32_is_what_the_processor_does(a in f32_bits(), b in f32_bits(), c in f32_bits()) {
        let (x, y, z) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
        let op = |op| binary(Format::F32, op, a.into(), b.into(), Round::NearestEven);
        prop_assert!(same32(op(Binary::Add), x + y));
        prop_assert!(same32(op(Binary::Sub), x - y));
        prop_assert!(same32(op(Binary::Mul), x * y));
        prop_assert!(same32(op(Binary::Div), x / y));
        prop_assert!(same32(sqrt(Format::F32, a.into(), Round::NearestEven), x.sqrt()));
        prop_assert!(same32(fma(Format::F32, a.into(), b.into(), c.into(), Round::NearestEven), x.mul_add(y, z)));
    }

    #[test]
    fn nearest_f64_is_what_the_processor_does(a in f64_bits(), b in f64_bits(), c in f64_bits()) {
        let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
        let op = |op| binary(Format::F64, op, a, b, Round::NearestEven);
        prop_assert!(same64(op(Binary::Add), x + y));
        prop_assert!(same64(op(Binary::Sub), x - y));
        prop_assert!(same64(op(Binary::Mul), x * y));
        prop_assert!(same64(op(Binary::Div), x / y));
        prop_assert!(same64(sqrt(Format::F64, a, Round::NearestEven), x.sqrt()));
        prop_assert!(same64(fma(Format::F64, a, b, c, Round::NearestEven), x.mul_add(y, z)));
    }

    /// The exact sum and product of two f32 fit an f64 (within a range of exponents), which tells
    /// whether a result is exact.
    #[test]
    fn directed_f32_encloses(a in f32_bits(), b in f32_bits()) {
        let (x, y) = (f64::from(f32::from_bits(a)), f64::from(f32::from_bits(b)));
        let read = |bits: u64| f64::from(f32::from_bits(bits as u32));
        let all = |op| MODES.map(|mode| binary(Format::F32, op, a.into(), b.into(), mode));
        if (x * y).is_finite() {
            encloses(all(Binary::Mul), f64::from((x * y) as f32) == x * y, read);
        }
        let sum = x + y;
        if sum.is_finite() && (sum - x == y && sum - y == x) {
            encloses(all(Binary::Add), f64::from(sum as f32) == sum, read);
        }
    }

    #[test]
    fn conversions_between_widths(a in f64_bits(), i in any::<u64>()) {
        prop_assert!(same32(convert(Format::F64, Format::F32, a, Round::NearestEven), f64::from_bits(a) as f32));
        prop_assert!(same32(from_int(Format::F32, false, i, Round::NearestEven), i as f32));
        prop_assert!(same64(from_int(Format::F64, true, i >> 1, Round::NearestEven), -((i >> 1) as f64) + 0.0));
        let f32_bits = (a >> 32) as u32;
        let half = half::f16::from_f32(f32::from_bits(f32_bits));
        let ours = convert(Format::F32, Format::F16, f32_bits.into(), Round::NearestEven);
        prop_assert!(half.is_nan() && ours == 0x7fff || u64::from(half.to_bits()) == ours);
        let down = f32::from_bits(convert(Format::F64, Format::F32, a, Round::Down) as u32);
        let up = f32::from_bits(convert(Format::F64, Format::F32, a, Round::Up) as u32);
        let x = f64::from_bits(a);
        if !x.is_nan() {
            prop_assert!(f64::from(down) <= x && x <= f64::from(up));
            prop_assert!(down == up || down.next_up() == up);
        }
    }
}

#[test]
fn overflow_and_underflow_follow_the_mode() {
    let max = u64::from(f32::MAX.to_bits());
    let results = MODES.map(|mode| binary(Format::F32, Binary::Add, max, max, mode) as u32);
    assert_eq!(results, [0x7f80_0000, f32::MAX.to_bits(), f32::MAX.to_bits(), 0x7f80_0000]);
    let tiny = 1u64;
    let results = MODES.map(|mode| binary(Format::F32, Binary::Mul, tiny, tiny, mode));
    assert_eq!(results, [0, 0, 0, 1]);
    let results = MODES.map(|mode| binary(Format::F32, Binary::Mul, tiny | 1 << 31, tiny, mode));
    assert_eq!(results, [1 << 31, 1 << 31, 1 << 31 | 1, 1 << 31]);
    // x - x is +0 except when rounding down.
    let results = MODES.map(|mode| binary(Format::F32, Binary::Sub, max, max, mode));
    assert_eq!(results, [0, 0, 1 << 31, 0]);
    assert_eq!(
        convert(Format::F32, Format::TF32, 0x3f80_1000, Round::NearestAway),
        0x3f80_2000 >> 13
    );
}
