//! Lengths of time, as people write them.

use std::str::FromStr;

use jiff::SignedDuration;

/// `90`, `90s`, `30m`, `12h`, `30d` or `8w`: a number without a unit is one of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) SignedDuration);

/// How such a time is written.
const WRITTEN: &str = "write seconds, or 90s, 30m, 12h, 30d or 8w";

/// The number of a time, and the seconds of its unit.
fn parts(text: &str) -> Option<(&str, u32)> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return None,
    };
    Some((digits, unit))
}

/// The seconds of a time that is longer than none.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    let (digits, unit) = parts(text)?;
    digits.parse::<i64>().ok()?.checked_mul(unit.into()).filter(|seconds| *seconds > 0)
}

/// A reader of whole seconds, no fewer and no more than so many, for flags.
pub(crate) fn seconds_between(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number =
            |(digits, unit): (&str, u32)| digits.parse::<u64>().ok()?.checked_mul(unit.into());
        let seconds = parts(text)
            .and_then(number)
            .ok_or_else(|| format!("`{text}` is no time; {WRITTEN}"))?;
        match (least..=most).contains(&seconds) {
            true => Ok(seconds),
            false => Err(format!("{seconds} seconds are not between {least} and {most}")),
        }
    }
}

/// The same for a time that need not be whole seconds.
pub(crate) fn fraction(text: &str) -> Result<f64, String> {
    let seconds = parts(text).and_then(|(digits, unit)| {
        digits.parse::<f64>().ok().map(|number| number * f64::from(unit))
    });
    let fine = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    fine.ok_or_else(|| format!("`{text}` is no time; {WRITTEN}"))
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        // More is for ever, and overflows no clock.
        let most = 100 * 366 * 24 * 3600;
        let fine = seconds(text).filter(|seconds| *seconds <= most);
        let span = fine.map(|seconds| Span(SignedDuration::from_secs(seconds)));
        span.ok_or_else(|| format!("`{text}` is no time; {WRITTEN}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_of_seconds() {
        for (text, wanted) in
            [("5", 5), ("90s", 90), ("30m", 1800), ("12h", 43200), ("1w", 604_800)]
        {
            assert_eq!(text.parse(), Ok(Span(SignedDuration::from_secs(wanted))));
        }
        for text in ["", "s", "0s", "-1s", "5y", "99999999999999w", "9999999w"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn flags_take_the_same_times() {
        let read = seconds_between(3, 3600);
        for (text, wanted) in [("3", 3), ("30s", 30), ("60m", 3600)] {
            assert_eq!(read(text), Ok(wanted));
        }
        for text in ["", "2", "61m", "1d", "x", "1.5", "99999999999999999999w"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(
            (fraction("0.5"), fraction("10s"), fraction("1.5m")),
            (Ok(0.5), Ok(10.0), Ok(90.0))
        );
        for text in ["", "s", "-1", "NaN", "inf", "1y"] {
            assert!(fraction(text).is_err(), "{text}");
        }
    }
}
