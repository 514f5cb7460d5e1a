//! What a linker takes besides images: host objects with device code in them, archives of such, and
//! what our own link makes.

use crate::elf;
use crate::elf::sections;
use crate::error::Error;
use crate::fatbin::{HEADER, container_length};

/// Sections of a host object that hold containers: of whole programs, and of parts that are still
/// to be linked.
const CONTAINER_SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];
/// The section of a linked image that holds one PTX text.
const TEXT_SECTION: &str = ".outboard.ptx";
/// First bytes of an archive.
const ARCHIVE: &[u8] = b"!<arch>\n";
/// Bytes of the header before each member of an archive.
const MEMBER: usize = 60;

/// The containers in a host object.
///
/// # Errors
///
/// If it is no ELF file, or a container in it is damaged.
pub fn object_containers(object: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let mut all = Vec::new();
    for section in sections(object)? {
        if CONTAINER_SECTIONS.contains(&section.name) {
            split_containers(section.bytes, &mut all)?;
        }
    }
    Ok(all)
}

/// Cuts containers apart that lie one behind the other.
fn split_containers<'a>(mut bytes: &'a [u8], all: &mut Vec<&'a [u8]>) -> Result<(), Error> {
    while bytes.iter().any(|&byte| byte != 0) {
        let header =
            bytes.first_chunk::<HEADER>().ok_or(Error::Truncated("a fat binary header"))?;
        let total = container_length(header)?;
        let total = usize::try_from(total).ok().filter(|total| *total <= bytes.len());
        let (container, rest) =
            bytes.split_at(total.ok_or(Error::Truncated("a fat binary container"))?);
        all.push(container);
        // They are aligned to 8 bytes.
        let pad = container.len().next_multiple_of(8) - container.len();
        bytes = rest.get(pad..).unwrap_or(&[]);
    }
    Ok(())
}

/// Whether this is an archive (`.a`).
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(ARCHIVE)
}

/// The objects of an archive, by name.
///
/// # Errors
///
/// If it is no archive, or ends inside a member.
pub fn archive_members(bytes: &[u8]) -> Result<Vec<(String, &[u8])>, Error> {
    let mut rest = bytes.strip_prefix(ARCHIVE).ok_or(Error::Damaged("not an archive"))?;
    let mut long_names: &[u8] = &[];
    let mut members = Vec::new();
    while !rest.is_empty() {
        let header =
            rest.get(..MEMBER).ok_or(Error::Truncated("the header of an archive member"))?;
        if &header[58..60] != b"`\n" {
            return Err(Error::Damaged("the header of an archive member has an odd end"));
        }
        let field = |range: std::ops::Range<usize>| {
            std::str::from_utf8(&header[range]).unwrap_or("").trim_end()
        };
        let size: usize =
            field(48..58).parse().map_err(|_| Error::Damaged("the size of an archive member"))?;
        let body = rest[MEMBER..].get(..size).ok_or(Error::Truncated("an archive member"))?;
        rest = rest.get(MEMBER + size.next_multiple_of(2)..).unwrap_or(&[]);
        match field(0..16) {
            // The index of symbols.
            "/" | "/SYM64/" => {}
            "//" => long_names = body,
            name => members.push((member_name(name, long_names), body)),
        }
    }
    Ok(members)
}

/// `name/`, or `/123`: at that place among the long names.
fn member_name(field: &str, long_names: &[u8]) -> String {
    let place = field.strip_prefix('/').and_then(|place| place.parse::<usize>().ok());
    let long = place.and_then(|place| long_names.get(place..));
    match long {
        Some(long) => {
            let end =
                long.iter().position(|byte| matches!(byte, b'/' | b'\n')).unwrap_or(long.len());
            String::from_utf8_lossy(&long[..end]).into_owned()
        }
        None => field.trim_end_matches('/').to_owned(),
    }
}

/// An image of PTX texts that together are one program: an ELF file, so that it passes for a cubin
/// with those who look at its first bytes, for architecture `sm`.
pub fn linked_image(texts: &[&str], sm: u32) -> Vec<u8> {
    const EHDR: usize = 64;
    const SHDR: usize = 64;
    let names = [b"\0.shstrtab\0", TEXT_SECTION.as_bytes(), b"\0"].concat();
    let (strings_name, text_name) = (1u32, 11u32);
    let mut body = Vec::new();
    // Name, kind, offset in the file, bytes.
    let mut rows: Vec<(u32, u32, usize, usize)> = vec![(0, 0, 0, 0)];
    for text in texts {
        rows.push((text_name, 1, EHDR + body.len(), text.len()));
        body.extend_from_slice(text.as_bytes());
        body.resize(body.len().next_multiple_of(8), 0);
    }
    rows.push((strings_name, 3, EHDR + body.len(), names.len()));
    body.extend_from_slice(&names);
    body.resize(body.len().next_multiple_of(8), 0);

    let mut out = Vec::with_capacity(EHDR + body.len() + rows.len() * SHDR);
    // 64 bits, little-endian, version 1, the operating system that cubins name.
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0");
    // An executable for CUDA.
    out.extend_from_slice(&2u16.to_le_bytes());
    out.extend_from_slice(&190u16.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&((EHDR + body.len()) as u64).to_le_bytes());
    out.extend_from_slice(&sm.to_le_bytes());
    for half in [EHDR, 0, 0, SHDR] {
        out.extend_from_slice(&(half as u16).to_le_bytes());
    }
    // More sections than the fields hold are told by the first row.
    let count = rows.len();
    let many = count >= 0xff00;
    out.extend_from_slice(&(if many { 0 } else { count as u16 }).to_le_bytes());
    out.extend_from_slice(&(if many { 0xffff } else { count as u16 - 1 }).to_le_bytes());
    out.extend_from_slice(&body);
    for (index, (name, kind, offset, size)) in rows.into_iter().enumerate() {
        let first = index == 0 && many;
        out.extend_from_slice(&name.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&(offset as u64).to_le_bytes());
        out.extend_from_slice(&(if first { count } else { size } as u64).to_le_bytes());
        out.extend_from_slice(&(if first { count as u32 - 1 } else { 0 }).to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&1u64.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
    }
    out
}

/// The PTX texts of an image that [`linked_image`] made; none for any other cubin.
///
/// # Errors
///
/// If it is no ELF file.
pub fn linked_texts(image: &[u8]) -> Result<Vec<&[u8]>, Error> {
    Ok(elf::sections(image)?
        .into_iter()
        .filter(|section| section.name == TEXT_SECTION)
        .map(|s| s.bytes)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, locate};

    #[test]
    #[cfg_attr(miri, ignore = "Miri takes minutes for an image of 65,539 sections")]
    fn linked_images_come_apart_again() {
        let image = linked_image(&["first", "", "third text"], 90);
        assert_eq!(linked_texts(&image).unwrap(), [&b"first"[..], b"", b"third text"]);
        let located = locate(&image[..], 0).unwrap();
        assert_eq!((located.format, located.image.len), (Format::Elf, image.len() as u64));
        let many = vec!["x"; 0x1_0003];
        let image = linked_image(&many, 75);
        assert_eq!(linked_texts(&image).unwrap().len(), many.len());
        assert_eq!(locate(&image[..], 0).unwrap().image.len, image.len() as u64);
    }

    #[test]
    fn archives() {
        let member = |name: &str, body: &str| {
            let pad = if body.len() % 2 == 1 { "\n" } else { "" };
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n{body}{pad}", 0, 0, 0, 644, body.len())
        };
        let text = format!(
            "!<arch>\n{}{}{}{}",
            member("/", "index"),
            member("//", "a_very_long_name_of_an_object.o/\n"),
            member("short.o/", "odd"),
            member("/0", "second")
        );
        assert!(is_archive(text.as_bytes()));
        let members = archive_members(text.as_bytes()).unwrap();
        let expected = [
            ("short.o".to_owned(), &b"odd"[..]),
            ("a_very_long_name_of_an_object.o".to_owned(), b"second"),
        ];
        assert_eq!(members, expected);
        for end in 0..text.len() {
            // Cut anywhere: an error or fewer members, no panic.
            let _ = archive_members(&text.as_bytes()[..end]);
        }
    }

    #[test]
    fn containers_of_a_section() {
        let container = |body: &[u8]| {
            let mut out = crate::FATBIN_MAGIC.to_le_bytes().to_vec();
            out.extend_from_slice(&1u16.to_le_bytes());
            out.extend_from_slice(&16u16.to_le_bytes());
            out.extend_from_slice(&(body.len() as u64).to_le_bytes());
            out.extend_from_slice(body);
            out
        };
        let (first, second) = (container(b"12345"), container(b"12345678"));
        let bytes = [&first[..], &[0; 3], &second, &[0; 16]].concat();
        let mut all = Vec::new();
        split_containers(&bytes, &mut all).unwrap();
        assert_eq!(all, [&first[..], &second]);
        assert!(split_containers(&bytes[..first.len() - 1], &mut Vec::new()).is_err());
    }
}
