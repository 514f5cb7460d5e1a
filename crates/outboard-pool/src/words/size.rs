//! Amounts of memory, as people read them.

use std::fmt;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        let shown =
            [0, 1023, 1536, 40 << 30, (80 << 30) - 1, 3 << 39].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1.5 KiB", "40 GiB", "79.9 GiB", "1.5 TiB"]);
    }
}
