//! `printf` in kernels: the format string, and the arguments as the compiler packed them.

use crate::rt::syscalls::Reader;
use std::ffi::CString;

/// Widest field and greatest precision honoured.
const WIDTH_MAX: i64 = 1024;

/// Arguments one after another, each aligned to its size.
struct Arguments<'a> {
    reader: &'a Reader<'a>,
    next: u64,
    count: u32,
}

impl Arguments<'_> {
    fn word(&mut self, wide: bool) -> Option<u64> {
        self.count += 1;
        if wide {
            self.next = self.next.checked_next_multiple_of(8)?;
            let value = u64::from_le_bytes(self.reader.bytes(self.next)?);
            self.next += 8;
            Some(value)
        } else {
            self.next = self.next.checked_next_multiple_of(4)?;
            let value = u32::from_le_bytes(self.reader.bytes(self.next)?);
            self.next += 4;
            Some(value.into())
        }
    }
}

/// One conversion of a format string, without its length modifier.
struct Spec {
    flags: String,
    width: Option<i64>,
    precision: Option<i64>,
}

impl Spec {
    /// Formats one value as C would: `letter` is the conversion with the length modifier that fits
    /// the type of the value.
    fn text(&self, letter: &str, value: Value) -> Vec<u8> {
        let mut spec = format!("%{}", self.flags);
        if let Some(width) = self.width {
            spec += &width.to_string();
        }
        if let Some(precision) = self.precision {
            spec += &format!(".{precision}");
        }
        spec += letter;
        let Ok(spec) = CString::new(spec) else { return Vec::new() };
        // Room for the longest f64 in `%f`, and for the widest field with the greatest precision.
        let mut buffer = [0u8; 2 * WIDTH_MAX as usize + 512];
        let (at, room) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the specification was built above from checked parts, takes exactly one argument
        // of the given type, and writes at most `room` bytes.
        let length = unsafe {
            match value {
                Value::Int(value) => libc::snprintf(at, room, spec.as_ptr(), value),
                Value::Float(value) => libc::snprintf(at, room, spec.as_ptr(), value),
            }
        };
        buffer[..(length.max(0) as usize).min(room - 1)].to_vec()
    }

    fn pad(&self, text: &[u8]) -> Vec<u8> {
        let text = &text[..text.len().min(self.precision.map_or(usize::MAX, |p| p as usize))];
        let fill = vec![b' '; (self.width.unwrap_or(0) as usize).saturating_sub(text.len())];
        if self.flags.contains('-') { [text, &fill].concat() } else { [&fill, text].concat() }
    }
}

#[derive(Clone, Copy)]
enum Value {
    Int(u64),
    Float(f64),
}

/// Formats `text` with the arguments at address `args`. Gives the result and the number of
/// arguments used, or `None` when an address is bad.
pub(crate) fn format(reader: &Reader<'_>, text: &[u8], args: u64) -> Option<(Vec<u8>, u32)> {
    let mut args = Arguments { reader, next: args, count: 0 };
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut i = 0;
    while i < text.len() {
        if text[i] != b'%' {
            out.push(text[i]);
            i += 1;
            continue;
        }
        let start = i;
        i += 1;
        let mut spec = Spec { flags: String::new(), width: None, precision: None };
        while let Some(&flag) = text.get(i).filter(|c| b"-+ #0".contains(c)) {
            if !spec.flags.contains(flag as char) {
                spec.flags.push(flag as char);
            }
            i += 1;
        }
        spec.width = number(text, &mut i, &mut args)?;
        if spec.width.is_some_and(|width| width < 0) {
            spec.flags.push('-');
            spec.width = spec.width.map(|w| w.saturating_neg().min(WIDTH_MAX));
        }
        if text.get(i) == Some(&b'.') {
            i += 1;
            // A negative precision counts as none.
            spec.precision =
                Some(number(text, &mut i, &mut args)?.unwrap_or(0)).filter(|&p| p >= 0);
        }
        let modifier = i;
        while text.get(i).is_some_and(|c| b"hlLqjzt".contains(c)) {
            i += 1;
        }
        let modifier = &text[modifier..i];
        let wide = modifier.iter().any(|c| b"lqjzt".contains(c));
        let Some(&conversion) = text.get(i) else {
            out.extend_from_slice(&text[start..]);
            break;
        };
        i += 1;
        match conversion {
            b'%' => out.push(b'%'),
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                let value = args.word(wide)?;
                let signed = matches!(conversion, b'd' | b'i');
                let value = match (modifier, signed) {
                    (b"hh", true) => value as i8 as u64,
                    (b"hh", false) => value as u8 as u64,
                    (b"h", true) => value as i16 as u64,
                    (b"h", false) => value as u16 as u64,
                    (_, true) if !wide => value as i32 as u64,
                    _ => value,
                };
                out.extend(spec.text(&format!("ll{}", conversion as char), Value::Int(value)));
            }
            b'c' => {
                let value = args.word(wide)? as u8;
                spec.precision = None;
                out.extend(spec.pad(&[value]));
            }
            b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => {
                let value = f64::from_bits(args.word(true)?);
                out.extend(spec.text(&(conversion as char).to_string(), Value::Float(value)));
            }
            b'p' => {
                let value = args.word(true)?;
                let digits = format!("0x{value:x}");
                spec.precision = None;
                out.extend(spec.pad(if value == 0 { b"(nil)" } else { digits.as_bytes() }));
            }
            b's' => {
                let addr = args.word(true)?;
                let text = if addr == 0 { b"(null)".to_vec() } else { reader.string(addr)? };
                out.extend(spec.pad(&text));
            }
            b'n' => {
                args.word(true)?;
            }
            _ => out.extend_from_slice(&text[start..i]),
        }
    }
    Some((out, args.count))
}

/// A width or precision: digits, or `*` for an argument.
fn number(text: &[u8], i: &mut usize, args: &mut Arguments<'_>) -> Option<Option<i64>> {
    if text.get(*i) == Some(&b'*') {
        *i += 1;
        return Some(Some(i64::from(args.word(false)? as i32).min(WIDTH_MAX)));
    }
    let mut value = None;
    while let Some(&digit) = text.get(*i).filter(|c| c.is_ascii_digit()) {
        value = Some((value.unwrap_or(0) * 10 + i64::from(digit - b'0')).min(WIDTH_MAX));
        *i += 1;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    fn run(text: &str, args: &[u8]) -> String {
        let memory = Memory::new(1 << 20, 1 << 40).expect("reserve");
        let addr = memory.alloc(4096, 1).expect("alloc");
        let string = memory.alloc(16, 1).expect("alloc");
        // SAFETY: both allocations are as large as what is written.
        unsafe {
            std::ptr::copy_nonoverlapping(args.as_ptr(), addr as *mut u8, args.len());
            std::ptr::copy_nonoverlapping(c"text".as_ptr().cast(), string as *mut u8, 5);
            // A marker for the address of a string.
            for slot in (0..args.len()).step_by(8) {
                if args[slot..].starts_with(b"STRING!!") {
                    ((addr + slot as u64) as *mut u64).write(string);
                }
            }
        }
        let (text, _) =
            format(&Reader(&memory), text.as_bytes(), addr).expect("addresses are good");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn conversions_follow_c() {
        let mut args = Vec::new();
        args.extend((-5i32).to_le_bytes());
        args.extend(255u32.to_le_bytes());
        args.extend(1.5f64.to_le_bytes());
        assert_eq!(run("%d|%#06x|%8.3f", &args), "-5|0x00ff|   1.500");
        let mut args = Vec::from(7u32.to_le_bytes());
        args.extend([0; 4]);
        args.extend(u64::MAX.to_le_bytes());
        args.extend(*b"STRING!!");
        args.extend(u64::from(b'c').to_le_bytes());
        assert_eq!(run("%u %llu [%-6s]%3c%%", &args), "7 18446744073709551615 [text  ]  c%");
        assert_eq!(
            run("%5.1e %g", &[1e10f64.to_le_bytes(), 0.1f64.to_le_bytes()].concat()),
            "1.0e+10 0.1"
        );
        assert_eq!(
            run(
                "%*d %hhd",
                &[3u32.to_le_bytes(), 7u32.to_le_bytes(), 300u32.to_le_bytes()].concat()
            ),
            "  7 44"
        );
        assert_eq!(run("100%", &[]), "100%");
    }

    #[test]
    fn a_bad_address_is_found_out() {
        let memory = Memory::new(1 << 20, 1 << 40).expect("reserve");
        assert!(format(&Reader(&memory), b"%d", 0).is_none());
        assert!(format(&Reader(&memory), b"%d", u64::MAX - 1).is_none());
    }
}
