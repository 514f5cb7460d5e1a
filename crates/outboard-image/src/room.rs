//! How much memory a program can take on a device, from what it declares.

use crate::fatbin::{Kind, entries};
use crate::locate::{Format, format_of};
use crate::{elf, fatbin};

/// Bytes that a driver may take whatever the program is: it has pages and pools of its own.
const ROUNDING: u64 = 4 << 20;
/// Bytes of machine code for a byte of PTX, at most.
const CODE: u64 = 64;

/// At most so many bytes of a device's memory are taken by code, constants and variables of an image. `None` if that cannot be told.
pub fn takes_at_most(image: &[u8]) -> Option<u64> {
    let bytes = match format_of(image).ok()? {
        Format::Elf => of_elf(image)?,
        Format::Ptx => of_ptx(image),
        Format::Fatbin => of_fatbin(image)?,
    };
    Some(bytes.saturating_add(ROUNDING))
}

/// Any of its programs may be the one that is loaded.
fn of_fatbin(image: &[u8]) -> Option<u64> {
    let mut most = 0;
    for entry in entries(image) {
        let entry: fatbin::Entry<'_> = entry.ok()?;
        most = most.max(match entry.kind {
            Kind::Elf => of_elf(&entry.contents().ok()?)?,
            Kind::Ptx => of_ptx(&entry.contents().ok()?),
            _ => return None,
        });
    }
    Some(most)
}

/// Shared memory is the multiprocessors' own; all other sections may be loaded.
fn of_elf(file: &[u8]) -> Option<u64> {
    let sections = elf::sections(file).ok()?;
    let loaded = sections.iter().filter(|section| !section.name.starts_with(".nv.shared"));
    Some(loaded.fold(0, |sum: u64, section| sum.saturating_add(section.size)))
}

/// Variables are declared with their sizes in brackets: `.global .align 8 .b64 name[4][8];`.
fn of_ptx(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let mut bytes = CODE.saturating_mul(text.len() as u64);
    for statement in text.split([';', '{', '}']) {
        let places = [".global", ".const"].into_iter().filter_map(|space| statement.find(space)).min();
        let Some(declared) = places.map(|at| &statement[at..]) else { continue };
        let sizes = declared.split('[').skip(1).filter_map(|rest| rest.split(']').next());
        let elements = sizes.filter_map(|size| number(size.trim())).fold(1u64, u64::saturating_mul);
        bytes = bytes.saturating_add(elements.saturating_mul(element(declared)));
    }
    bytes
}

/// Bytes of an element, by the type in front of its name.
fn element(declared: &str) -> u64 {
    let words = || declared.split(|c: char| c.is_whitespace() || c == '[' || c == '=');
    let bits = words().find_map(|word| word.strip_prefix('.')?.strip_prefix(['b', 'u', 's', 'f'])?.parse::<u64>().ok());
    let vector = words().find_map(|word| word.strip_prefix(".v")?.parse::<u64>().ok());
    bits.map_or(16, |bits| bits.min(128) / 8) * vector.unwrap_or(1).min(8)
}

/// A number as PTX writes it; what is none counts as the largest.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let text = text.trim_end_matches(['U', 'u']);
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = match hex {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

    fn of(text: &str) -> u64 {
        takes_at_most(format!("{HEAD}{text}").as_bytes()).unwrap()
    }

    #[test]
    fn variables_count_by_what_they_declare() {
        let small = of(".visible .entry nothing() { ret; }\n");
        assert!(small < ROUNDING + (64 << 10));
        let large = of(".visible .global .align 8 .b8 large[32505856];\n");
        assert!((32505856..32505856 + ROUNDING + (64 << 10)).contains(&large));
        assert!(of(".global .b32 a[0x100][256], b;\n") >= 65536 * 4);
        assert!(of(".global .align 16 .v4 .f32 a[1000000];\n") >= 16_000_000);
        assert_eq!(of(".global .b32 a[99999999999999999999];\n"), u64::MAX, "what cannot be read bounds nothing");
        assert!(takes_at_most(&[0; 8]).is_none());
    }
}
