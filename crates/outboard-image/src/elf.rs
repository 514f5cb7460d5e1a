//! As much of ELF as cubins need: their length, and their sections.

use crate::error::Error;
use crate::locate::MAX_IMAGE;
use crate::memory::{Memory, read, u16_at, u32_at, u64_at};

/// First four bytes of an ELF file.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");

const EHDR: usize = 64;
const SHDR: usize = 64;
const PHDR: usize = 56;
/// A section without bytes in the file.
const SHT_NOBITS: u32 = 8;
/// Most sections that are looked at; a cubin has a handful for each kernel.
const MAX_SECTIONS: u64 = 1 << 20;

struct Header {
    phoff: u64,
    phnum: u64,
    shoff: u64,
    shnum: u64,
    shstrndx: u32,
}

fn header(memory: &(impl Memory + ?Sized), addr: u64) -> Result<Header, Error> {
    let bytes: [u8; EHDR] = read(memory, addr)?;
    // 64-bit, little-endian.
    if u32_at(&bytes, 0) != MAGIC || bytes[4] != 2 || bytes[5] != 1 {
        return Err(Error::Damaged("not a 64-bit little-endian ELF file"));
    }
    let mut header = Header {
        phoff: u64_at(&bytes, 0x20),
        phnum: u64::from(u16_at(&bytes, 0x38)),
        shoff: u64_at(&bytes, 0x28),
        shnum: u64::from(u16_at(&bytes, 0x3C)),
        shstrndx: u32::from(u16_at(&bytes, 0x3E)),
    };
    if header.phnum != 0 && usize::from(u16_at(&bytes, 0x36)) != PHDR {
        return Err(Error::Damaged("an ELF program header has an odd size"));
    }
    if header.shoff != 0 {
        if usize::from(u16_at(&bytes, 0x3A)) != SHDR {
            return Err(Error::Damaged("an ELF section header has an odd size"));
        }
        // Numbers that do not fit their fields stand in the first section header.
        if header.shnum == 0 || header.shstrndx == 0xffff {
            let first: [u8; SHDR] = read(memory, at(addr, header.shoff)?)?;
            if header.shnum == 0 {
                header.shnum = u64_at(&first, 0x20);
            }
            if header.shstrndx == 0xffff {
                header.shstrndx = u32_at(&first, 0x28);
            }
        }
    } else {
        header.shnum = 0;
    }
    if header.shnum > MAX_SECTIONS {
        return Err(Error::TooLarge {
            what: "an ELF section table",
            size: header.shnum,
            limit: MAX_SECTIONS,
        });
    }
    Ok(header)
}

fn at(base: u64, offset: u64) -> Result<u64, Error> {
    base.checked_add(offset).ok_or(Error::Damaged("an ELF offset wraps around"))
}

/// Bytes of the ELF file at `addr`: the end of what lies furthest back.
pub(crate) fn length(memory: &(impl Memory + ?Sized), addr: u64) -> Result<u64, Error> {
    let header = header(memory, addr)?;
    let mut end = EHDR as u64;
    let mut reach = |offset: u64, size: u64| {
        end = end.max(offset.saturating_add(size));
    };
    reach(header.phoff, header.phnum * PHDR as u64);
    reach(header.shoff, header.shnum * SHDR as u64);
    for index in 0..header.phnum {
        let segment: [u8; PHDR] = read(memory, at(addr, at(header.phoff, index * PHDR as u64)?)?)?;
        reach(u64_at(&segment, 0x08), u64_at(&segment, 0x20));
    }
    for index in 0..header.shnum {
        let section: [u8; SHDR] = read(memory, at(addr, at(header.shoff, index * SHDR as u64)?)?)?;
        if u32_at(&section, 4) != SHT_NOBITS {
            reach(u64_at(&section, 0x18), u64_at(&section, 0x20));
        }
    }
    if end > MAX_IMAGE {
        return Err(Error::TooLarge { what: "an ELF file", size: end, limit: MAX_IMAGE });
    }
    Ok(end)
}

/// A section of a file in memory.
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: &'a [u8],
    /// Bytes in memory, whether or not they are in the file.
    pub(crate) size: u64,
    kind: u32,
    /// For a symbol table: the section that holds its names.
    link: u32,
}

/// All sections of `file`. One whose bytes are not in the file, or whose name is no text, is empty
/// there.
pub(crate) fn sections(file: &[u8]) -> Result<Vec<Section<'_>>, Error> {
    let header = header(file, 0)?;
    let table = slice(file, header.shoff, header.shnum * SHDR as u64)
        .ok_or(Error::Truncated("the ELF section table"))?;
    let (rows, _) = table.as_chunks::<SHDR>();
    let names = rows.get(header.shstrndx as usize).map_or(&[][..], |row| section_bytes(file, row));
    let section = |row: &'_ [u8; SHDR]| Section {
        name: string(names, u32_at(row, 0)),
        bytes: section_bytes(file, row),
        size: u64_at(row, 0x20),
        kind: u32_at(row, 4),
        link: u32_at(row, 0x28),
    };
    Ok(rows.iter().map(section).collect())
}

/// Names of the kernels among the symbols, in the order of the symbol table.
pub(crate) fn kernel_names<'a>(sections: &[Section<'a>]) -> Vec<&'a str> {
    const SHT_SYMTAB: u32 = 2;
    const STT_FUNC: u8 = 2;
    /// Marks a kernel in the `st_other` field of its symbol.
    const STO_CUDA_ENTRY: u8 = 0x10;
    let mut kernels = Vec::new();
    for table in sections.iter().filter(|section| section.kind == SHT_SYMTAB) {
        let names = sections.get(table.link as usize).map_or(&[][..], |section| section.bytes);
        let (symbols, _) = table.bytes.as_chunks::<24>();
        for symbol in symbols {
            let name = string(names, u32_at(symbol, 0));
            if symbol[4] & 0xf == STT_FUNC && symbol[5] & STO_CUDA_ENTRY != 0 && !name.is_empty() {
                kernels.push(name);
            }
        }
    }
    kernels
}

fn section_bytes<'a>(file: &'a [u8], row: &[u8; SHDR]) -> &'a [u8] {
    if u32_at(row, 4) == SHT_NOBITS {
        return &[];
    }
    slice(file, u64_at(row, 0x18), u64_at(row, 0x20)).unwrap_or(&[])
}

fn slice(file: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    file.get(start..end)
}

/// The string at `offset` of a string table; empty if there is none.
fn string(table: &[u8], offset: u32) -> &str {
    let bytes = table.get(offset as usize..).unwrap_or(&[]);
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
    std::str::from_utf8(&bytes[..end]).unwrap_or("")
}
