//! Numbers of unlimited precision.

use num_bigint::BigUint;

use crate::ir::Round;

/// `magnitude / 2^shift` rounded to an integer (multiplied for negative shifts).
pub(super) fn round_shift(
    magnitude: &BigUint,
    shift: i64,
    negative: bool,
    round: Round,
) -> BigUint {
    let Ok(shift) = u64::try_from(shift) else { return magnitude << shift.unsigned_abs() };
    let kept = magnitude >> shift;
    let rest = magnitude - (&kept << shift);
    if rest.bits() == 0 {
        return kept;
    }
    let twice = &rest << 1u32;
    let unit = BigUint::from(1u32) << shift;
    let up = match round {
        Round::NearestEven => twice > unit || (twice == unit && kept.bit(0)),
        Round::NearestAway => twice >= unit,
        Round::Zero => false,
        Round::Up => !negative,
        Round::Down => negative,
    };
    if up { kept + 1u32 } else { kept }
}

/// A number of unlimited precision: `±magnitude · 2^exponent`.
#[derive(Clone, Debug)]
pub(in crate::interp) enum Number {
    Nan,
    Infinity { negative: bool },
    Finite { negative: bool, magnitude: BigUint, exponent: i64 },
}

impl Number {
    fn is_zero(&self) -> bool {
        matches!(self, Number::Finite { magnitude, .. } if magnitude.bits() == 0)
    }

    fn negative(&self) -> bool {
        match self {
            Number::Nan => false,
            Number::Infinity { negative } | Number::Finite { negative, .. } => *negative,
        }
    }

    pub(in crate::interp) fn negated(self) -> Number {
        match self {
            Number::Nan => Number::Nan,
            Number::Infinity { negative } => Number::Infinity { negative: !negative },
            Number::Finite { negative, magnitude, exponent } => {
                Number::Finite { negative: !negative, magnitude, exponent }
            }
        }
    }

    /// An integer.
    pub(in crate::interp) fn integer(value: i128) -> Number {
        Number::Finite { negative: value < 0, magnitude: value.unsigned_abs().into(), exponent: 0 }
    }

    /// The exact sum. `round` only decides the sign of a zero that comes from cancellation.
    pub(in crate::interp) fn add(&self, other: &Number, round: Round) -> Number {
        match (self, other) {
            (Number::Nan, _) | (_, Number::Nan) => Number::Nan,
            (Number::Infinity { negative: a }, Number::Infinity { negative: b }) if a != b => {
                Number::Nan
            }
            (Number::Infinity { negative }, _) | (_, Number::Infinity { negative }) => {
                Number::Infinity { negative: *negative }
            }
            (
                Number::Finite { negative: na, magnitude: ma, exponent: ea },
                Number::Finite { negative: nb, magnitude: mb, exponent: eb },
            ) => {
                let exponent = *ea.min(eb);
                let a = ma << (ea - exponent).unsigned_abs();
                let b = mb << (eb - exponent).unsigned_abs();
                let (negative, magnitude) = if na == nb {
                    (*na, a + b)
                } else if a == b {
                    (round == Round::Down, BigUint::ZERO)
                } else if a > b {
                    (*na, a - b)
                } else {
                    (*nb, b - a)
                };
                Number::Finite { negative, magnitude, exponent }
            }
        }
    }

    /// The exact product.
    pub(in crate::interp) fn mul(&self, other: &Number) -> Number {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Number::Nan, _) | (_, Number::Nan) => Number::Nan,
            (Number::Infinity { .. }, other) | (other, Number::Infinity { .. }) => {
                if other.is_zero() { Number::Nan } else { Number::Infinity { negative } }
            }
            (
                Number::Finite { magnitude: ma, exponent: ea, .. },
                Number::Finite { magnitude: mb, exponent: eb, .. },
            ) => Number::Finite { negative, magnitude: ma * mb, exponent: ea + eb },
        }
    }

    /// The quotient, with so many bits and a sticky last one that any rounding of it is right.
    pub(in crate::interp) fn div(&self, other: &Number) -> Number {
        const EXTRA: u64 = 160;
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Number::Nan, _) | (_, Number::Nan) => Number::Nan,
            (Number::Infinity { .. }, Number::Infinity { .. }) => Number::Nan,
            (Number::Infinity { .. }, _) => Number::Infinity { negative },
            (_, Number::Infinity { .. }) => {
                Number::Finite { negative, magnitude: BigUint::ZERO, exponent: 0 }
            }
            (a, b) if b.is_zero() => {
                if a.is_zero() {
                    Number::Nan
                } else {
                    Number::Infinity { negative }
                }
            }
            (
                Number::Finite { magnitude: ma, exponent: ea, .. },
                Number::Finite { magnitude: mb, exponent: eb, .. },
            ) => {
                let scaled = ma << EXTRA;
                let quotient = &scaled / mb;
                let exact = &quotient * mb == scaled;
                let magnitude = sticky(quotient, exact);
                Number::Finite { negative, magnitude, exponent: ea - eb - EXTRA as i64 - 1 }
            }
        }
    }

    /// The square root, as [`Number::div`].
    pub(in crate::interp) fn sqrt(&self) -> Number {
        match self {
            Number::Nan => Number::Nan,
            Number::Infinity { negative: false } => self.clone(),
            _ if self.is_zero() => self.clone(),
            Number::Infinity { .. } | Number::Finite { negative: true, .. } => Number::Nan,
            Number::Finite { magnitude, exponent, .. } => {
                let odd = exponent.rem_euclid(2);
                let scaled = magnitude << (160 + odd as u64);
                let root = scaled.sqrt();
                let exact = &root * &root == scaled;
                let exponent = (exponent - odd - 160) / 2 - 1;
                Number::Finite { negative: false, magnitude: sticky(root, exact), exponent }
            }
        }
    }

    /// Rounded to an integral value. `None` for NaN; infinities give a number beyond any type.
    pub(in crate::interp) fn to_integer(&self, round: Round) -> Option<(bool, BigUint)> {
        match self {
            Number::Nan => None,
            Number::Infinity { negative } => Some((*negative, BigUint::from(1u32) << 200u32)),
            Number::Finite { negative, magnitude, exponent } => {
                Some((*negative, round_shift(magnitude, -exponent, *negative, round)))
            }
        }
    }
}

/// One more bit, set unless the value is exact.
fn sticky(value: BigUint, exact: bool) -> BigUint {
    let doubled = value << 1u32;
    if exact { doubled } else { doubled + 1u32 }
}
