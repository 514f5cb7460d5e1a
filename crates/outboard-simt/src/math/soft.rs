//! Exact binary floating-point arithmetic with one rounding, for any format up to `f64` and every
//! rounding mode.
//!
//! A finite value is `mantissa * 2^exponent` with a 128-bit mantissa, which is wide enough that
//! each operation is either exact or leaves a sticky remainder far below the rounding position. The
//! processor does rounding to nearest; this module does the rest, and the two check each other in
//! tests.

use outboard_ptx::ir::Round;

/// A binary interchange format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Explicit fraction bits.
    pub(crate) frac: u32,
    /// Exponent bits.
    pub(crate) exp: u32,
    /// The NaN that operations produce.
    pub(crate) nan: u64,
}

impl Format {
    pub(crate) const F16: Format = Format { frac: 10, exp: 5, nan: 0x7fff };
    pub(crate) const BF16: Format = Format { frac: 7, exp: 8, nan: 0x7fff };
    pub(crate) const TF32: Format = Format { frac: 10, exp: 8, nan: 0x3_ffff };
    pub(crate) const F32: Format = Format { frac: 23, exp: 8, nan: 0x7fff_ffff };
    pub(crate) const F64: Format = Format { frac: 52, exp: 11, nan: 0xfff8_0000_0000_0000 };
    pub(crate) const E5M2: Format = Format { frac: 2, exp: 5, nan: 0x7f };

    const fn bias(self) -> i32 {
        (1 << (self.exp - 1)) - 1
    }

    const fn sign_bit(self) -> u64 {
        1 << (self.frac + self.exp)
    }

    pub(crate) const fn infinity(self) -> u64 {
        ((1 << self.exp) - 1) << self.frac
    }

    pub(crate) fn unpack(self, bits: u64) -> Value {
        let sign = bits & self.sign_bit() != 0;
        let exp = (bits >> self.frac) & ((1 << self.exp) - 1);
        let frac = bits & ((1 << self.frac) - 1);
        let lowest = 1 - self.bias() - self.frac as i32;
        match (exp, frac) {
            (0, 0) => Value::Zero(sign),
            (0, _) => Value::Finite { sign, exp: lowest, mant: frac.into() },
            (e, 0) if e == (1 << self.exp) - 1 => Value::Infinite(sign),
            (e, _) if e == (1 << self.exp) - 1 => Value::Nan,
            _ => Value::Finite {
                sign,
                exp: lowest + exp as i32 - 1,
                mant: (frac | 1 << self.frac).into(),
            },
        }
    }

    /// The bits of a value, rounded once.
    pub(crate) fn pack(self, value: Value, round: Round) -> u64 {
        let signed = |sign: bool, bits: u64| if sign { bits | self.sign_bit() } else { bits };
        match value {
            Value::Nan => self.nan,
            Value::Infinite(sign) => signed(sign, self.infinity()),
            Value::Zero(sign) => signed(sign, 0),
            Value::Finite { sign, exp, mant } => {
                signed(sign, self.round_pack(sign, exp, mant, round))
            }
        }
    }

    /// Magnitude bits of `mant * 2^exp` (`mant` not zero).
    fn round_pack(self, sign: bool, exp: i32, mant: u128, round: Round) -> u64 {
        let top = exp + 127 - mant.leading_zeros() as i32;
        let lowest = 1 - self.bias();
        // Exponent of the last place of the result.
        let quantum = top.max(lowest) - self.frac as i32;
        let drop = quantum - exp;
        let (kept, rest, half) = match drop {
            ..=0 => (mant << -drop, 0, 1),
            1..=127 => (mant >> drop, mant & ((1 << drop) - 1), 1 << (drop - 1)),
            128 => (0, mant, 1 << 127),
            _ => (0, 1, u128::MAX),
        };
        let up = match round {
            Round::NearestEven => rest > half || (rest == half && kept & 1 == 1),
            Round::NearestAway => rest >= half && rest != 0,
            Round::Zero => false,
            Round::Down => sign && rest != 0,
            Round::Up => !sign && rest != 0,
        };
        let kept = kept as u64 + u64::from(up);
        let biased = quantum + self.frac as i32 + self.bias();
        // A carry out of the fraction runs into the exponent, which is what it should do.
        let bits =
            if kept >> self.frac == 0 { kept } else { ((biased as u64 - 1) << self.frac) + kept };
        if bits < self.infinity() && biased < (1 << self.exp) {
            return bits;
        }
        let to_infinity = match round {
            Round::NearestEven | Round::NearestAway => true,
            Round::Zero => false,
            Round::Down => sign,
            Round::Up => !sign,
        };
        self.infinity() - u64::from(!to_infinity)
    }
}

/// A number, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nan,
    Infinite(bool),
    Zero(bool),
    /// `mant * 2^exp`, with `mant` not zero.
    Finite {
        sign: bool,
        exp: i32,
        mant: u128,
    },
}

/// Bit at which operands of additions have their highest one: room for a carry above, and for guard
/// bits below.
const ADD_TOP: u32 = 124;

impl Value {
    pub(crate) fn from_int(negative: bool, magnitude: u64) -> Value {
        match magnitude {
            0 => Value::Zero(false),
            _ => Value::Finite { sign: negative, exp: 0, mant: magnitude.into() },
        }
    }

    pub(crate) fn neg(self) -> Value {
        match self {
            Value::Nan => Value::Nan,
            Value::Infinite(sign) => Value::Infinite(!sign),
            Value::Zero(sign) => Value::Zero(!sign),
            Value::Finite { sign, exp, mant } => Value::Finite { sign: !sign, exp, mant },
        }
    }

    /// The exact product of two values with at most 64 bits each.
    pub(crate) fn mul(self, other: Value) -> Value {
        use Value::{Finite, Infinite, Nan, Zero};
        let sign = self.sign() != other.sign();
        match (self, other) {
            (Nan, _) | (_, Nan) | (Infinite(_), Zero(_)) | (Zero(_), Infinite(_)) => Nan,
            (Infinite(_), _) | (_, Infinite(_)) => Infinite(sign),
            (Zero(_), _) | (_, Zero(_)) => Zero(sign),
            (Finite { exp: ea, mant: ma, .. }, Finite { exp: eb, mant: mb, .. }) => {
                Finite { sign, exp: ea + eb, mant: ma * mb }
            }
        }
    }

    /// The sum, good for one rounding to at most 64 bits. `round` decides the sign of a zero from
    /// cancellation.
    pub(crate) fn add(self, other: Value, round: Round) -> Value {
        use Value::{Finite, Infinite, Nan, Zero};
        match (self, other) {
            (Nan, _) | (_, Nan) => Nan,
            (Infinite(a), Infinite(b)) if a != b => Nan,
            (Infinite(a), _) | (_, Infinite(a)) => Infinite(a),
            (Zero(a), Zero(b)) => Zero(if a == b { a } else { round == Round::Down }),
            (Zero(_), x) | (x, Zero(_)) => x,
            (Finite { sign: sa, exp: ea, mant: ma }, Finite { sign: sb, exp: eb, mant: mb }) => {
                let (a, b) = (raise(sa, ea, ma), raise(sb, eb, mb));
                let (big, small) = if (a.1, a.2) >= (b.1, b.2) { (a, b) } else { (b, a) };
                let distance = (big.1 - small.1) as u32;
                let (aligned, lost) = match distance {
                    0 => (small.2, false),
                    1..=127 => (small.2 >> distance, small.2 & ((1 << distance) - 1) != 0),
                    _ => (0, true),
                };
                // One spare bit below holds the sticky remainder.
                let exp = big.1 - 1;
                let mant = if big.0 == small.0 {
                    ((big.2 + aligned) << 1) | u128::from(lost)
                } else {
                    ((big.2 - aligned) << 1) - u128::from(lost)
                };
                if mant == 0 {
                    Zero(round == Round::Down)
                } else {
                    Finite { sign: big.0, exp, mant }
                }
            }
        }
    }

    /// The quotient, good for one rounding to at most 60 bits.
    pub(crate) fn div(self, other: Value) -> Value {
        use Value::{Finite, Infinite, Nan, Zero};
        let sign = self.sign() != other.sign();
        match (self, other) {
            (Nan, _) | (_, Nan) | (Infinite(_), Infinite(_)) | (Zero(_), Zero(_)) => Nan,
            (Infinite(_), _) | (_, Zero(_)) => Infinite(sign),
            (Zero(_), _) | (_, Infinite(_)) => Zero(sign),
            (Finite { exp: ea, mant: ma, .. }, Finite { exp: eb, mant: mb, .. }) => {
                let up = ma.leading_zeros();
                let down = mb.leading_zeros() - 64;
                let (n, d) = (ma << up, mb << down);
                let (q, r) = (n / d, n % d);
                Finite {
                    sign,
                    exp: ea - up as i32 - (eb - down as i32) - 1,
                    mant: q << 1 | u128::from(r != 0),
                }
            }
        }
    }

    /// The square root, good for one rounding to at most 60 bits.
    pub(crate) fn sqrt(self) -> Value {
        match self {
            Value::Finite { sign: false, exp, mant } => {
                let mut up = mant.leading_zeros() - 1;
                if (exp - up as i32) % 2 != 0 {
                    up -= 1;
                }
                let m = mant << up;
                let r = m.isqrt();
                Value::Finite {
                    sign: false,
                    exp: (exp - up as i32) / 2 - 1,
                    mant: r << 1 | u128::from(r * r != m),
                }
            }
            Value::Finite { .. } | Value::Nan | Value::Infinite(true) => Value::Nan,
            Value::Infinite(false) | Value::Zero(_) => self,
        }
    }

    fn sign(self) -> bool {
        match self {
            Value::Nan => false,
            Value::Infinite(sign) | Value::Zero(sign) | Value::Finite { sign, .. } => sign,
        }
    }
}

/// Moves the highest one to the place where additions want it. Values have at most 106 bits.
fn raise(sign: bool, exp: i32, mant: u128) -> (bool, i32, u128) {
    let up = mant.leading_zeros() as i32 - (127 - ADD_TOP as i32);
    if up >= 0 { (sign, exp - up, mant << up) } else { (sign, exp - up, mant >> -up) }
}

/// An operation of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

/// Operations on `f64` hand on the first NaN among their operands, made quiet; the other formats
/// have one NaN.
fn handed_on(format: Format, operands: &[u64]) -> Option<u64> {
    let quiet = 1 << (format.frac - 1);
    let nan = operands.iter().find(|&&bits| format.unpack(bits) == Value::Nan)?;
    (format == Format::F64).then_some(nan | quiet)
}

/// `a op b` in `format`, rounded once.
pub(crate) fn binary(format: Format, op: Binary, a: u64, b: u64, round: Round) -> u64 {
    if let Some(nan) = handed_on(format, &[a, b]) {
        return nan;
    }
    let (a, b) = (format.unpack(a), format.unpack(b));
    let exact = match op {
        Binary::Add => a.add(b, round),
        Binary::Sub => a.add(b.neg(), round),
        Binary::Mul => a.mul(b),
        Binary::Div => a.div(b),
    };
    format.pack(exact, round)
}

/// `a * b + c` in `format`, rounded once.
pub(crate) fn fma(format: Format, a: u64, b: u64, c: u64, round: Round) -> u64 {
    if let Some(nan) = handed_on(format, &[a, b, c]) {
        return nan;
    }
    let product = format.unpack(a).mul(format.unpack(b));
    format.pack(product.add(format.unpack(c), round), round)
}

/// The square root in `format`, rounded once.
pub(crate) fn sqrt(format: Format, a: u64, round: Round) -> u64 {
    if let Some(nan) = handed_on(format, &[a]) {
        return nan;
    }
    format.pack(format.unpack(a).sqrt(), round)
}

/// A value of one format in another, rounded once.
pub(crate) fn convert(from: Format, to: Format, a: u64, round: Round) -> u64 {
    to.pack(from.unpack(a), round)
}

/// An integer in `format`, rounded once.
pub(crate) fn from_int(format: Format, negative: bool, magnitude: u64, round: Round) -> u64 {
    format.pack(Value::from_int(negative, magnitude), round)
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
