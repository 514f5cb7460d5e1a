//! Lengths of time, as people write them.

use std::str::FromStr;

use jiff::SignedDuration;

/// `90s`, `30m`, `12h`, `30d` or `8w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) SignedDuration);

/// The seconds of a time that is longer than none.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit).filter(|seconds| *seconds > 0)
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        // More is for ever, and overflows no clock.
        let most = 100 * 366 * 24 * 3600;
        let fine = seconds(text).filter(|seconds| *seconds <= most);
        let span = fine.map(|seconds| Span(SignedDuration::from_secs(seconds)));
        span.ok_or_else(|| format!("`{text}` is no time; write 90s, 30m, 12h, 30d or 8w"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, wanted) in [("90s", 90), ("30m", 1800), ("12h", 43200), ("1w", 604_800)] {
            assert_eq!(text.parse(), Ok(Span(SignedDuration::from_secs(wanted))));
        }
        for text in ["", "s", "0s", "-1s", "5", "5y", "99999999999999w", "9999999w"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
