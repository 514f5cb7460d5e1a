//! Numbers as people read them.

use crate::results::Unit;
use crate::statistics::Summary;

/// A number with three digits that count.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    let behind = match () {
        () if size >= 99.95 || size == 0.0 => 0,
        () if size >= 9.995 => 1,
        () if size >= 0.9995 => 2,
        () => 3,
    };
    format!("{value:.behind$}")
}

/// What to divide by, and the unit's name, for numbers of about this size.
fn scale(unit: Unit, size: f64) -> (f64, &'static str) {
    match unit {
        Unit::Time if size < 0.9995e-6 => (1e-9, "ns"),
        Unit::Time if size < 0.9995e-3 => (1e-6, "µs"),
        Unit::Time if size < 0.9995 => (1e-3, "ms"),
        Unit::Time => (1.0, "s"),
        Unit::Rate => (1e9, "GB/s"),
        Unit::Bytes if size < 1e3 => (1.0, "B"),
        Unit::Bytes if size < 1e6 => (1e3, "kB"),
        Unit::Bytes => (1e6, "MB"),
        Unit::Factor => (1.0, "×"),
    }
}

/// `2.41 µs`.
pub(crate) fn value(unit: Unit, value: f64) -> String {
    let (divisor, name) = scale(unit, value.abs());
    format!("{} {name}", digits(value / divisor))
}

/// `0.3 µs`: a number that people wrote, with no more digits than they did.
pub(crate) fn plain(unit: Unit, value: f64) -> String {
    let (divisor, name) = match unit {
        // People write 0.3 µs and 100 ms.
        Unit::Time if value < 1e-3 => (1e-6, "µs"),
        unit => scale(unit, value),
    };
    let rounded = (value / divisor * 1e6).round() / 1e6;
    format!("{rounded} {name}")
}

/// `2.41 µs (2.38–2.50)`: all in the median's unit.
pub(crate) fn spread(unit: Unit, summary: &Summary) -> String {
    let (divisor, name) = scale(unit, summary.median.abs());
    let in_unit = |value: f64| digits(value / divisor);
    let (median, low, high) =
        (in_unit(summary.median), in_unit(summary.low), in_unit(summary.high));
    if low == high {
        format!("{median} {name}")
    } else {
        format!("{median} {name} ({low}–{high})")
    }
}

/// `1.05 × (1.01–1.20)`.
pub(crate) fn ratio(summary: &Summary) -> String {
    let (median, low, high) = (digits(summary.median), digits(summary.low), digits(summary.high));
    if low == high { format!("{median} ×") } else { format!("{median} × ({low}–{high})") }
}

/// What names of measures call a size: `64K` is 65,536 bytes.
pub(crate) fn size(name: &str) -> Option<usize> {
    let (digits, factor) = match name.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => (name.strip_suffix('M')?, 1 << 20),
    };
    digits.parse::<usize>().ok()?.checked_mul(factor)
}

/// The name of a size: `64K`.
pub(crate) fn size_name(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{}K", bytes >> 10) } else { format!("{}M", bytes >> 20) }
}

/// A size for people: `64 KiB`.
pub(crate) fn size_words(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        for (number, text) in [
            (0.0, "0"),
            (0.0314, "0.031"),
            (0.5, "0.500"),
            (2.414, "2.41"),
            (54.26, "54.3"),
            (1234.5, "1234"),
            (9.999, "10.0"),
        ] {
            assert_eq!(digits(number), text);
        }
    }

    #[test]
    fn units_fit_the_size() {
        assert_eq!(value(Unit::Time, 2.4e-6), "2.40 µs");
        assert_eq!(value(Unit::Time, 999.9e-9), "1.00 µs");
        assert_eq!(value(Unit::Time, 45e-9), "45.0 ns");
        assert_eq!(value(Unit::Rate, 54e9), "54.0 GB/s");
        assert_eq!(value(Unit::Bytes, 0.0), "0 B");
        assert_eq!(value(Unit::Factor, 1.25), "1.25 ×");
        assert_eq!(plain(Unit::Time, 0.3 * 1e-6), "0.3 µs");
        assert_eq!(plain(Unit::Time, 0.1), "100 ms");
        let summary = Summary { median: 0.9e-3, low: 0.8e-3, high: 1.2e-3 };
        assert_eq!(spread(Unit::Time, &summary), "900 µs (800–1200)");
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (name, bytes, words) in [("64K", 65536, "64 KiB"), ("16M", 16 << 20, "16 MiB")] {
            assert_eq!(size(name), Some(bytes));
            assert_eq!((size_name(bytes), size_words(bytes)), (name.to_owned(), words.to_owned()));
        }
        assert!(["", "K", "64", "h2d", "é"].into_iter().all(|name| size(name).is_none()));
    }
}
