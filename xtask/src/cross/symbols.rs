//! What a file needs of the system that loads it, and what it offers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{Dyn, FileHeader, Sym};

use super::targets::OLDEST;

/// What every system with glibc has, by PEP 600: the word of `manylinux`.
const SYSTEM: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// The parts of a file that its loader reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Libraries that must be there.
    pub(crate) libraries: BTreeSet<String>,
    /// The newest version of glibc of which it needs something.
    pub(crate) glibc: Option<(u32, u32)>,
    /// Other versions that it needs of libraries.
    pub(crate) others: BTreeSet<String>,
    /// Functions that others find in it.
    pub(crate) exports: BTreeSet<String>,
}

impl Facts {
    pub(crate) fn of(file: &Path) -> Result<Facts> {
        let data = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        read(&data).with_context(|| format!("cannot understand {}", file.display()))
    }

    /// Fails unless every system has what is needed, the old ones too.
    pub(crate) fn check_old(&self) -> Result<()> {
        let strange = self.libraries.iter().filter(|name| !SYSTEM.contains(&name.as_str()));
        let strange: Vec<_> = strange.chain(&self.others).map(String::as_str).collect();
        if !strange.is_empty() {
            bail!("it needs {}, which not every system has", strange.join(", "));
        }
        match self.glibc {
            Some((major, minor)) if (major, minor) > OLDEST => {
                bail!("it needs glibc {major}.{minor}; {}.{} is allowed", OLDEST.0, OLDEST.1)
            }
            _ => Ok(()),
        }
    }

    /// Fails unless nothing at all is needed.
    pub(crate) fn check_static(&self) -> Result<()> {
        if self.libraries.is_empty() && self.glibc.is_none() {
            return Ok(());
        }
        bail!("it is not linked statically: it needs {:?}", self.libraries)
    }
}

/// `GLIBC_2.17` as numbers; `GLIBC_PRIVATE` and names of other libraries are none.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.strip_prefix("GLIBC_")?.split_once('.')?;
    let minor = rest.split_once('.').map_or(rest, |(minor, _)| minor);
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn read(data: &[u8]) -> Result<Facts> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut facts = Facts::default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        while let Some((need, mut versions)) = needs.next()? {
            let library = text(need.file(endian, strings)?);
            while let Some(version) = versions.next()? {
                let name = text(version.name(endian, strings)?);
                match glibc(&name) {
                    Some(found) => facts.glibc = facts.glibc.max(Some(found)),
                    // The unwinder's oldest versions are in all of them.
                    None if name.starts_with("GCC_3") || name.starts_with("GCC_4") => {}
                    None => _ = facts.others.insert(format!("{name} of {library}")),
                }
            }
        }
    }
    let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
    for symbol in symbols.iter() {
        let offered = !symbol.is_undefined(endian) && symbol.st_type() == object::elf::STT_FUNC;
        if offered {
            facts.exports.insert(text(symbol.name(endian, symbols.strings())?));
        }
    }
    if let Some((entries, link)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == object::elf::DT_NEEDED) {
            facts.libraries.insert(text(entry.string(endian, strings)?));
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_test_itself_needs() {
        let facts = Facts::of(&std::env::current_exe().unwrap()).unwrap();
        assert!(facts.libraries.contains("libc.so.6"), "{facts:?}");
        assert!(facts.glibc >= Some(OLDEST), "{:?}", facts.glibc);
        assert!(facts.check_static().is_err());
    }

    #[test]
    fn versions_are_numbers_and_newer_ones_are_refused() {
        assert_eq!(glibc("GLIBC_2.4"), Some((2, 4)));
        assert_eq!(glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!((glibc("GLIBC_PRIVATE"), glibc("GLIBCXX_3.4.1")), (None, None));
        let with = |glibc, library: &str| Facts {
            glibc,
            libraries: [library.to_owned()].into(),
            ..Facts::default()
        };
        with(Some((2, 17)), "libc.so.6").check_old().unwrap();
        with(None, "libm.so.6").check_old().unwrap();
        assert!(with(Some((2, 18)), "libc.so.6").check_old().is_err());
        assert!(with(Some((2, 4)), "libstdc++.so.6").check_old().is_err());
        let private =
            Facts { others: ["GLIBC_PRIVATE of x".to_owned()].into(), ..with(None, "libc.so.6") };
        assert!(private.check_old().is_err());
    }

    #[test]
    fn what_is_no_such_file_is_said_to_be_none() {
        for bytes in [&b""[..], b"#!/bin/sh\n", &[0x7f, b'E', b'L', b'F'], &[0; 64]] {
            assert!(read(bytes).is_err());
        }
    }
}
