//! The parts of an ELF file's headers that the loader reads.

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadRef};

/// The facts about a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Elf {
    /// For which processors it is, by Rust's names; `None` for others than Outboard is built for.
    pub(super) machine: Option<&'static str>,
    /// Its loader; `None` if it is linked statically as a whole, or a library.
    pub(super) interpreter: Option<String>,
    /// Folders that the loader searches before `LD_LIBRARY_PATH`, ...
    pub(super) rpath: Vec<String>,
    /// ... unless there is this, which comes behind it.
    pub(super) has_runpath: bool,
}

/// Why nothing is known of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is no ELF file.
    Other,
    /// It is one for 32 bits.
    Narrow,
    /// It is damaged.
    Damaged(String),
}

pub(super) fn read(data: &[u8]) -> Result<Elf, Unreadable> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => {
            read_wide(data).map_err(|error| Unreadable::Damaged(error.to_string()))
        }
        Ok(FileKind::Elf32) => Err(Unreadable::Narrow),
        _ => Err(Unreadable::Other),
    }
}

fn read_wide(data: &[u8]) -> object::Result<Elf> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let machine = match header.e_machine(endian) {
        elf::EM_X86_64 => Some("x86_64"),
        elf::EM_AARCH64 => Some("aarch64"),
        _ => None,
    };
    let segments = header.program_headers(endian, data)?;
    let mut found = Elf { machine, ..Elf::default() };
    let mut dynamic = &[][..];
    for segment in segments {
        if let Some(interpreter) = segment.interpreter(endian, data)? {
            found.interpreter = Some(String::from_utf8_lossy(interpreter).into_owned());
        }
        dynamic = segment.dynamic(endian, data)?.unwrap_or(dynamic);
    }
    let value =
        |tag| dynamic.iter().find(|entry| entry.tag(endian) == tag).map(|entry| entry.val(endian));
    // Strings lie at an address of the program's.
    let text = |offset: u64| {
        let address = value(elf::DT_STRTAB)?.checked_add(offset)?;
        let segment = segments.iter().find_map(|segment| {
            let (from, size) = segment.file_range(endian);
            let start = segment.p_vaddr(endian);
            let is_load = segment.p_type(endian) == elf::PT_LOAD;
            (is_load && address >= start && address - start < size)
                .then(|| (from + (address - start), size - (address - start)))
        });
        let (from, most) = segment?;
        let bytes = data.read_bytes_at(from, most).ok()?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    };
    found.has_runpath = value(elf::DT_RUNPATH).is_some();
    let rpath = value(elf::DT_RPATH).and_then(text).unwrap_or_default();
    found.rpath = rpath.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned).collect();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_read_and_damage_is_found() {
        let data = std::fs::read("/proc/self/exe").unwrap();
        let own = read(&data).unwrap();
        assert_eq!(own.machine, Some(std::env::consts::ARCH));
        assert!(own.interpreter.is_some_and(|interpreter| interpreter.contains("/ld-")));
        assert_eq!(read(b"#!/bin/sh\n"), Err(Unreadable::Other));
        assert_eq!(read(b""), Err(Unreadable::Other));
        // Wherever it ends, and whatever its head says, there is an answer.
        for end in (0..data.len().min(4096)).step_by(7) {
            let _ = read(&data[..end]);
        }
        for at in 0..data.len().min(1024) {
            let mut damaged = data[..data.len().min(1 << 20)].to_vec();
            damaged[at] = 0xff;
            let _ = read(&damaged);
        }
    }
}
