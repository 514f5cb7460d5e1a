//! Exact floating point: numbers as big integers times powers of two, rounded once at the end.
//!
//! Slow and plain on purpose. What compiled code does with machine instructions and tricks is
//! compared with this.

mod number;

use num_bigint::BigUint;

use crate::ir::Round;
use crate::types::Type;
pub(super) use number::Number;
use number::round_shift;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    exponent_bits: u32,
    /// Stored fraction bits.
    fraction_bits: u32,
    /// No infinities, a single NaN pattern (`e4m3`).
    finite_only: bool,
}

impl Format {
    pub(super) const E4M3: Format =
        Format { exponent_bits: 4, fraction_bits: 3, finite_only: true };
    pub(super) const E5M2: Format =
        Format { exponent_bits: 5, fraction_bits: 2, finite_only: false };
    /// The fraction of tf32, with the exponent of f32.
    pub(super) const TF32: Format =
        Format { exponent_bits: 8, fraction_bits: 10, finite_only: false };

    /// The format of a scalar floating-point type.
    pub(super) fn of(ty: Type) -> Format {
        let (exponent_bits, fraction_bits) = match ty {
            Type::F16 | Type::F16x2 => (5, 10),
            Type::BF16 | Type::BF16x2 => (8, 7),
            Type::F64 => (11, 52),
            _ => (8, 23),
        };
        Format { exponent_bits, fraction_bits, finite_only: false }
    }

    fn bias(self) -> i64 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    fn exponent_mask(self) -> u64 {
        (1 << self.exponent_bits) - 1
    }

    fn fraction_mask(self) -> u64 {
        (1 << self.fraction_bits) - 1
    }

    /// The NaN that results have: all ones but for the sign, in f64 the quiet NaN.
    pub(super) fn nan(self) -> u64 {
        if self.fraction_bits == 52 { 0x7ff8 << 48 } else { self.sign_bit() - 1 }
    }

    pub(super) fn infinity(self, negative: bool) -> u64 {
        self.signed(negative, self.exponent_mask() << self.fraction_bits)
    }

    /// The greatest finite number.
    pub(super) fn max_finite(self, negative: bool) -> u64 {
        let magnitude = if self.finite_only {
            // All ones is the NaN.
            self.sign_bit() - 2
        } else {
            (self.exponent_mask() << self.fraction_bits) - 1
        };
        self.signed(negative, magnitude)
    }

    pub(super) fn zero(self, negative: bool) -> u64 {
        self.signed(negative, 0)
    }

    fn signed(self, negative: bool, magnitude: u64) -> u64 {
        if negative { magnitude | self.sign_bit() } else { magnitude }
    }

    pub(super) fn is_negative(self, bits: u64) -> bool {
        bits & self.sign_bit() != 0
    }

    /// The pattern with its sign set as told.
    pub(super) fn with_sign(self, bits: u64, negative: bool) -> u64 {
        self.signed(negative, bits & (self.sign_bit() - 1))
    }

    pub(super) fn is_nan(self, bits: u64) -> bool {
        matches!(self.decode(bits), Number::Nan)
    }

    /// True for numbers below the normal range, zero excluded.
    pub(super) fn is_subnormal(self, bits: u64) -> bool {
        (bits >> self.fraction_bits) & self.exponent_mask() == 0 && bits & self.fraction_mask() != 0
    }

    /// Flushes a subnormal pattern to the zero of its sign.
    pub(super) fn flush(self, bits: u64) -> u64 {
        if self.is_subnormal(bits) { self.zero(self.is_negative(bits)) } else { bits }
    }

    pub(super) fn decode(self, bits: u64) -> Number {
        let negative = self.is_negative(bits);
        let exponent = (bits >> self.fraction_bits) & self.exponent_mask();
        let fraction = bits & self.fraction_mask();
        if exponent == self.exponent_mask() {
            if self.finite_only {
                if fraction == self.fraction_mask() {
                    return Number::Nan;
                }
            } else if fraction != 0 {
                return Number::Nan;
            } else {
                return Number::Infinity { negative };
            }
        }
        let (magnitude, exponent) = match exponent {
            0 => (fraction, 1),
            _ => (fraction | (1 << self.fraction_bits), exponent as i64),
        };
        let exponent = exponent - self.bias() - i64::from(self.fraction_bits);
        Number::Finite { negative, magnitude: magnitude.into(), exponent }
    }

    /// The pattern nearest to a number in the given direction.
    pub(super) fn encode(self, number: &Number, round: Round) -> u64 {
        match number {
            Number::Nan => self.nan(),
            Number::Infinity { negative } if self.finite_only => {
                let _ = negative;
                self.nan()
            }
            Number::Infinity { negative } => self.infinity(*negative),
            Number::Finite { negative, magnitude, exponent } => {
                self.round(*negative, magnitude, *exponent, round)
            }
        }
    }

    fn round(self, negative: bool, magnitude: &BigUint, exponent: i64, round: Round) -> u64 {
        if magnitude.bits() == 0 {
            return self.zero(negative);
        }
        let fraction_bits = i64::from(self.fraction_bits);
        let least = 1 - self.bias() - fraction_bits;
        let top = exponent + magnitude.bits() as i64 - 1;
        // The exponent of the last place of the result.
        let last = (top - fraction_bits).max(least);
        let kept = round_shift(magnitude, last - exponent, negative, round);
        let kept = u64::try_from(&kept).unwrap_or(u64::MAX);
        // The implicit bit of a normal number carries into the exponent field by addition.
        let biased = (last - least) as u64;
        let pattern = (biased << self.fraction_bits) + kept;
        if pattern > self.max_finite(false) {
            let away = match round {
                Round::NearestEven | Round::NearestAway => true,
                Round::Zero => false,
                Round::Up => !negative,
                Round::Down => negative,
            };
            return match (away, self.finite_only) {
                (true, true) => self.nan(),
                (true, false) => self.infinity(negative),
                (false, _) => self.max_finite(negative),
            };
        }
        self.signed(negative, pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const F32: Format = Format { exponent_bits: 8, fraction_bits: 23, finite_only: false };
    const F64: Format = Format { exponent_bits: 11, fraction_bits: 52, finite_only: false };
    const RN: Round = Round::NearestEven;

    fn same32(ours: u64, machine: f32) -> bool {
        machine.is_nan() && F32.is_nan(ours) || ours == u64::from(machine.to_bits())
    }

    fn same64(ours: u64, machine: f64) -> bool {
        machine.is_nan() && F64.is_nan(ours) || ours == machine.to_bits()
    }

    /// Patterns of all kinds: any, near one another in size, at the ends of the range.
    fn pattern32() -> impl Strategy<Value = u32> {
        let near = (any::<u32>(), 100u32..150)
            .prop_map(|(bits, exponent)| bits & 0x807f_ffff | exponent << 23);
        let edge = (
            any::<bool>(),
            prop::sample::select(vec![0, 1, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0x7f80_0000]),
        )
            .prop_map(|(negative, bits): (bool, u32)| bits | u32::from(negative) << 31);
        prop_oneof![any::<u32>(), near.clone(), near, edge]
    }

    fn pattern64() -> impl Strategy<Value = u64> {
        let near = (any::<u64>(), 960u64..1080)
            .prop_map(|(bits, exponent)| bits & !(0x7ff << 52) | exponent << 52);
        prop_oneof![
            any::<u64>(),
            near.clone(),
            near,
            Just(0),
            Just(1),
            Just(1 << 52),
            Just(0x7fef_ffff_ffff_ffff)
        ]
    }

    proptest! {
        /// The processor is the judge of rounding to nearest.
        #[test]
        fn nearest_agrees_with_the_machine(
            [a, b, c] in [pattern32(), pattern32(), pattern32()],
            [d, e, f] in [pattern64(), pattern64(), pattern64()],
        ) {
            let [x, y, z] = [a, b, c].map(|bits| F32.decode(u64::from(bits)));
            let [p, q, r] = [a, b, c].map(f32::from_bits);
            prop_assert!(same32(F32.encode(&x.add(&y, RN), RN), p + q));
            prop_assert!(same32(F32.encode(&x.mul(&y), RN), p * q));
            prop_assert!(same32(F32.encode(&x.div(&y), RN), p / q));
            prop_assert!(same32(F32.encode(&x.sqrt(), RN), p.sqrt()));
            prop_assert!(same32(F32.encode(&x.mul(&y).add(&z, RN), RN), p.mul_add(q, r)));
            let [x, y, z] = [d, e, f].map(|bits| F64.decode(bits));
            let [p, q, r] = [d, e, f].map(f64::from_bits);
            prop_assert!(same64(F64.encode(&x.add(&y, RN), RN), p + q));
            prop_assert!(same64(F64.encode(&x.mul(&y), RN), p * q));
            prop_assert!(same64(F64.encode(&x.div(&y), RN), p / q));
            prop_assert!(same64(F64.encode(&x.sqrt(), RN), p.sqrt()));
            prop_assert!(same64(F64.encode(&x.mul(&y).add(&z, RN), RN), p.mul_add(q, r)));
            prop_assert!(same32(F32.encode(&x, RN), p as f32));
        }

        /// Directed results enclose the exact value and are neighbours.
        #[test]
        fn directions_enclose_the_result(a in pattern32(), b in pattern32()) {
            let [x, y] = [a, b].map(|bits| F32.decode(u64::from(bits)));
            let exact = x.mul(&y);
            let [down, up, zero] = [Round::Down, Round::Up, Round::Zero].map(|round| F32.encode(&exact, round));
            let [low, high, inner] = [down, up, zero].map(|bits| f32::from_bits(bits as u32));
            if !low.is_nan() {
                prop_assert!(low <= high);
                prop_assert!(low == high || low.next_up() == high);
                let toward_zero = if high <= 0.0 { high } else { low };
                prop_assert_eq!(inner, toward_zero);
                let wide = f64::from(f32::from_bits(a)) * f64::from(f32::from_bits(b));
                prop_assert!(f64::from(low) <= wide && wide <= f64::from(high));
            }
        }
    }

    #[test]
    fn small_formats_end_where_they_should() {
        let encode = |value: f64, format: Format| format.encode(&F64.decode(value.to_bits()), RN);
        assert_eq!(encode(448.0, Format::E4M3), 0x7e);
        assert_eq!(encode(1000.0, Format::E4M3), 0x7f);
        assert_eq!(encode(57344.0, Format::E5M2), 0x7b);
        assert_eq!(encode(1e9, Format::E5M2), 0x7c);
        assert_eq!(encode(2f64.powi(-9), Format::E4M3), 1);
        assert_eq!(encode(65504.0, Format::of(Type::F16)), 0x7bff);
        assert_eq!(encode(65520.0, Format::of(Type::F16)), 0x7c00);
    }
}
