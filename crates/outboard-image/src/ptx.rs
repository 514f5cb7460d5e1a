//! A light scan of PTX text for kernels. The full parser lives elsewhere; this one only needs the
//! heads of `.entry`.

use crate::kernels::{Kernel, Param};

/// Largest parameter buffer that PTX allows, in bytes; a longer one is a damaged text.
const MAX_PARAMS: u32 = 1 << 16;

/// The kernels of a PTX text. Heads that cannot be understood are left out: loading the text
/// reports them.
pub fn kernels(text: &str) -> Vec<Kernel> {
    let mut words = Words { rest: text };
    let mut kernels = Vec::new();
    while let Some(word) = words.next() {
        if word == ".entry"
            && let Some(kernel) = head(&mut words)
        {
            kernels.push(kernel);
        }
    }
    kernels
}

/// `name ( .param .type name[count], ... )`
fn head(words: &mut Words<'_>) -> Option<Kernel> {
    let name = words.next()?.to_owned();
    let mut kernel = Kernel { name, params: Vec::new(), params_size: 0 };
    let mut word = words.next()?;
    // Without parameters the parentheses may be missing; directives of the kernel follow then.
    if word != "(" {
        return Some(kernel);
    }
    loop {
        word = words.next()?;
        match word {
            ")" => return Some(kernel),
            "," => continue,
            ".param" => {}
            _ => return None,
        }
        let (size, align, end) = param(words)?;
        let offset = kernel.params_size.checked_next_multiple_of(align)?;
        kernel.params_size = offset.checked_add(size).filter(|&end| end <= MAX_PARAMS)?;
        kernel.params.push(Param { offset, size });
        if end == ")" {
            return Some(kernel);
        }
    }
}

/// Size and alignment of one parameter in bytes, and the `,` or `)` behind it.
fn param<'t>(words: &mut Words<'t>) -> Option<(u32, u32, &'t str)> {
    let mut align = 1u32;
    let mut element = 0u32;
    let mut vector = 1u32;
    let mut pointee = false;
    let mut count = 1u32;
    loop {
        let word = words.next()?;
        match word {
            "," | ")" => {
                let natural = element.checked_mul(vector).filter(|&size| size != 0)?;
                return Some((natural.checked_mul(count)?, align.max(natural), word));
            }
            ".align" => {
                let bytes: u32 = words.next()?.parse().ok()?;
                // Behind `.ptr` it is the alignment of what the pointer points to.
                if !pointee {
                    align = Some(bytes).filter(|bytes| bytes.is_power_of_two())?;
                }
            }
            ".ptr" => pointee = true,
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            "[" => {
                let number = words.next()?;
                let number: u32 = number.parse().ok()?;
                count = count.checked_mul(number)?;
            }
            _ => {
                if let Some(size) = word.strip_prefix('.').and_then(type_size) {
                    element = size;
                }
            }
        }
    }
}

/// Bytes of a scalar type.
fn type_size(name: &str) -> Option<u32> {
    match name {
        "b8" | "u8" | "s8" => Some(1),
        "b16" | "u16" | "s16" | "f16" | "bf16" => Some(2),
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => Some(4),
        "b64" | "u64" | "s64" | "f64" | "texref" | "samplerref" | "surfref" => Some(8),
        "b128" => Some(16),
        _ => None,
    }
}

/// Words (with a leading dot where they have one) and single other characters, without comments and
/// white space.
struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("//") {
                self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
            } else if let Some(string) = self.rest.strip_prefix('"') {
                self.rest = string.split_once('"').map_or("", |(_, rest)| rest);
            } else {
                break;
            }
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
        let first = self.rest.chars().next()?;
        let start = first.len_utf8();
        let len = if is_word(first) || first == '.' {
            start + self.rest[start..].find(|c| !is_word(c)).unwrap_or(self.rest.len() - start)
        } else {
            start
        };
        let (word, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(word)
    }
}
