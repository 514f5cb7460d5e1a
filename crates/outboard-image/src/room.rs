//! How much memory a program can take on a device, from what it declares.

use crate::fatbin::{Kind, choices, entries};
use crate::locate::{Format, format_of};
use crate::{elf, fatbin};

/// Bytes that a driver may take whatever the program is: it has pages and pools of its own.
const ROUNDING: u64 = 4 << 20;
/// Bytes of machine code for a byte of PTX, at most.
const CODE: u64 = 64;

/// At most so many bytes of a device's memory are taken by code, constants and variables of an
/// image. `None` if that cannot be told.
pub fn takes_at_most(image: &[u8]) -> Option<u64> {
    let bytes = match format_of(image).ok()? {
        Format::Elf => of_elf(image)?,
        Format::Ptx => of_ptx(image),
        Format::Fatbin => of_fatbin(image)?,
    };
    Some(bytes.saturating_add(ROUNDING))
}

/// At least so many bytes of a device's memory are taken by the variables of the program that a
/// device of this architecture (such as 90) loads of an image. 0 if that cannot be told.
pub fn takes_at_least(image: &[u8], sm: u32) -> u64 {
    match format_of(image) {
        Ok(Format::Elf) => variables_of_elf(image),
        Ok(Format::Ptx) => variables_of_ptx(image),
        Ok(Format::Fatbin) => {
            let read =
                |entry: fatbin::Entry<'_>| Some((entry.kind, entry.contents().ok()?.into_owned()));
            match choices(image, sm).ok().and_then(|mut choices| choices.find_map(read)) {
                Some((Kind::Elf, program)) => variables_of_elf(&program),
                Some((_, program)) => variables_of_ptx(&program),
                None => 0,
            }
        }
        Err(_) => 0,
    }
}

fn variables_of_elf(file: &[u8]) -> u64 {
    let is_variables = |name: &str| name == ".nv.global" || name.starts_with(".nv.global.");
    let sections = elf::sections(file).unwrap_or_default();
    let variables = sections.iter().filter(|section| is_variables(section.name));
    variables.fold(0, |sum: u64, section| sum.saturating_add(section.size))
}

/// The compiler may drop variables that nobody can see and no kernel uses.
fn variables_of_ptx(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let visible = text.split([';', '{', '}']).filter(|statement| statement.contains(".visible"));
    visible.filter_map(|statement| declared(statement, &[".global"])).fold(0, u64::saturating_add)
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

fn of_ptx(text: &[u8]) -> u64 {
    let code = CODE.saturating_mul(text.len() as u64);
    let text = String::from_utf8_lossy(text);
    let statements = text.split([';', '{', '}']);
    statements
        .filter_map(|statement| declared(statement, &[".global", ".const"]))
        .fold(code, u64::saturating_add)
}

/// Bytes of the variable in one of these spaces that a statement declares. Its size stands in
/// brackets: `.global .align 8 .b64 name[4][8]`.
fn declared(statement: &str, spaces: &[&str]) -> Option<u64> {
    let named = |space: &&str| {
        let mut places = statement.match_indices(*space).map(|(at, _)| at);
        places.find(|at| !is_of_an_instruction(&statement[..*at]))
    };
    let at = spaces.iter().filter_map(named).min()?;
    let declared = &statement[at..];
    let sizes = declared.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    let elements = sizes.filter_map(|size| number(size.trim())).fold(1u64, u64::saturating_mul);
    Some(elements.saturating_mul(element(declared)))
}

/// Whether what follows this text is a part of an instruction's name, as in `ld.global`. In a
/// declaration, only other words with a dot stand there: `.visible.global`.
fn is_of_an_instruction(before: &str) -> bool {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let name = before.trim_end_matches(is_of_a_name).len();
    before[name..].starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Bytes of an element, by the type in front of its name.
fn element(declared: &str) -> u64 {
    let words = || declared.split(|c: char| c.is_whitespace() || c == '[' || c == '=');
    let bits = words().find_map(|word| {
        word.strip_prefix('.')?.strip_prefix(['b', 'u', 's', 'f'])?.parse::<u64>().ok()
    });
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
        assert_eq!(
            of(".global .b32 a[99999999999999999999];\n"),
            u64::MAX,
            "what cannot be read bounds nothing"
        );
        assert!(takes_at_most(&[0; 8]).is_none());
    }

    #[test]
    fn instructions_declare_nothing() {
        let code = ".visible .entry k(.param .u64 p) {\n.reg .b64 %rd<2>;\n\
             ld.param.u64 %rd1, [p];\nL1:ld.global.u8 %rs1, [%rd1];\n@%p1 bra $L2;\n\
             $L2:\nst.global.u8 [%rd1], %rs1;\nld.const.u32 %r1, [%rd1];\n}\n";
        assert!(of(code) < ROUNDING + (64 << 10));
        for declaration in [
            ".visible.global.align 8.b8 a[1000000];",
            "L1:.global .b8 a[1000000];",
            "/**/.const .b8 a[1000000];",
        ] {
            let all = of(&code.replace("ld.param", &format!("{declaration}\nld.param")));
            assert!(all >= 1_000_000, "{declaration}");
        }
    }

    #[test]
    fn visible_variables_are_taken_for_certain() {
        let of = |text: &str| takes_at_least(format!("{HEAD}{text}").as_bytes(), 90);
        assert_eq!(
            of(".visible .global .align 8 .b8 large[32505856];\n.visible .global .u32 b;\n"),
            32505856 + 4
        );
        assert_eq!(
            of(
                ".global .b32 dropped[256];\n.visible .const .b32 c[4];\n.visible .entry k() { ret; }\n"
            ),
            0
        );
        assert_eq!(takes_at_least(&[0; 8], 90), 0);
    }
}
