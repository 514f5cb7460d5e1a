//! Amounts of memory, as people read and write them.

use super::Malformed;
use std::fmt;
use std::str::FromStr;

/// Bytes, displayed in the largest unit of which there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            let (whole, rest) = (self.0 >> shift, self.0 & ((1 << shift) - 1));
            if whole == 0 {
                continue;
            }
            // Cut, not rounded: what is said to be free is free.
            let tenths = (u128::from(rest) * 10) >> shift;
            return match tenths {
                0 => write!(f, "{whole} {unit}"),
                _ => write!(f, "{whole}.{tenths} {unit}"),
            };
        }
        write!(f, "{} bytes", self.0)
    }
}

impl FromStr for Size {
    type Err = Malformed;

    /// Bytes, or a number with K, M, G or T.
    fn from_str(text: &str) -> Result<Size, Malformed> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            unit => return Err(Malformed(format!("`{unit}` is no unit; write K, M, G or T"))),
        };
        let number: u64 = digits
            .parse()
            .map_err(|_| Malformed(format!("`{text}` is not a number of bytes, such as 8G")))?;
        let bytes = number.checked_mul(1 << shift);
        bytes.map(Size).ok_or_else(|| Malformed(format!("`{text}` is too much")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, wanted) in [("0", 0), ("17", 17), ("4k", 4096), ("8G", 8 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(wanted)));
        }
        for text in ["", "G", "1.5G", "-1", "8X", "8GB", "99999999999T"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_readable() {
        let shown =
            [0, 1023, 1536, 40 << 30, (80 << 30) - 1, 3 << 39].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1.5 KiB", "40 GiB", "79.9 GiB", "1.5 TiB"]);
    }
}
