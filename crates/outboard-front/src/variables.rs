//! Variables of the environment that NVIDIA documents for its driver, and that say how calls
//! behave. Those that choose devices are `visible.rs`'s, and the log file is `logs.rs`'s.

/// What the variables say when `cuInit` is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `CUDA_MODULE_LOADING=EAGER`: a runtime loads all that it holds before it launches.
    pub(crate) loads_eagerly: bool,
    /// `CUDA_LAUNCH_BLOCKING=1`: a launch returns when its kernel is done.
    pub(crate) launches_wait: bool,
}

impl Settings {
    /// The settings, by what gives the value of a variable.
    pub(crate) fn read(value: impl Fn(&str) -> Option<String>) -> Settings {
        let is_eager = |mode: String| mode.eq_ignore_ascii_case("EAGER");
        let is_on = |text: String| number(&text).is_some_and(|number| number != 0);
        Settings {
            loads_eagerly: value("CUDA_MODULE_LOADING").is_some_and(is_eager),
            launches_wait: value("CUDA_LAUNCH_BLOCKING").is_some_and(is_on),
        }
    }
}

/// The number at the beginning of a text, as C's `strtol` reads it with base 0: after white space
/// and a sign, hexadecimal after `0x`, binary after `0b`, octal after another `0`. One that is too
/// large is the largest. `None` if there are no digits.
pub(crate) fn number(text: &str) -> Option<i64> {
    let text = text.trim_ascii_start();
    let (is_negative, text) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = |text: &str, base: u32| {
        let digits = text.chars().map_while(|digit| digit.to_digit(base));
        let mut digits = digits.map(i128::from).peekable();
        digits.peek()?;
        let most = i128::from(u64::MAX);
        Some(digits.fold(0, |sum, digit| (sum * i128::from(base) + digit).min(most)))
    };
    let based = |prefix: [&str; 2], base| {
        prefix.iter().find_map(|prefix| digits(text.strip_prefix(prefix)?, base))
    };
    let size = based(["0x", "0X"], 16)
        .or_else(|| based(["0b", "0B"], 2))
        .or_else(|| digits(text, if text.starts_with('0') { 8 } else { 10 }))?;
    let value = if is_negative { -size } else { size };
    Some(value.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_strtol() {
        for (text, wanted) in [
            ("0", Some(0)),
            (" \t-12 ", Some(-12)),
            ("+7;8", Some(7)),
            ("0x1F", Some(31)),
            ("0Xg", Some(0)),
            ("0b101", Some(5)),
            ("010", Some(8)),
            ("08", Some(0)),
            ("99999999999999999999999999999999999999999999", Some(i64::MAX)),
            ("-18446744073709551616", Some(i64::MIN)),
            ("", None),
            ("-", None),
            ("- 1", None),
            ("x1", None),
        ] {
            assert_eq!(number(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn variables_are_off_unless_they_say_otherwise() {
        let read = |mode: &'static str, blocking: &'static str| {
            Settings::read(move |name| {
                let value = if name == "CUDA_MODULE_LOADING" { mode } else { blocking };
                Some(value.to_owned())
            })
        };
        assert_eq!(Settings::read(|_| None), Settings::default());
        for mode in ["LAZY", "lazy", "DEFAULT", "wrong", "", " EAGER", "1"] {
            assert!(!read(mode, "").loads_eagerly, "{mode:?}");
        }
        for mode in ["EAGER", "eager"] {
            assert!(read(mode, "").loads_eagerly, "{mode:?}");
        }
        for (blocking, wanted) in
            [("1", true), ("2", true), ("0", false), ("", false), ("yes", false)]
        {
            assert_eq!(read("", blocking).launches_wait, wanted, "{blocking:?}");
        }
    }
}
