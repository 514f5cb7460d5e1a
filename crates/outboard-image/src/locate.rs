//! What lies at a pointer that a program hands to the driver, and how long it is. No call carries a
//! length.

use crate::error::Error;
use crate::memory::{Memory, read, u16_at, u32_at, u64_at};
use crate::{elf, fatbin};

/// First four bytes of the structure that the CUDA runtime passes for an embedded fat binary.
pub const WRAPPER_MAGIC: u32 = 0x4662_43B1;

/// Longest PTX text that is looked for, in bytes.
pub const MAX_PTX: u64 = 1 << 28;
/// Longest ELF file or container, in bytes.
pub const MAX_IMAGE: u64 = 1 << 32;
/// Most containers of one relocatable link.
const MAX_CONTAINERS: u64 = 1 << 16;

/// What the bytes of an image are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One fat binary container or several.
    Fatbin,
    /// A single cubin.
    Elf,
    /// PTX text.
    Ptx,
}

/// A stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes. For PTX text without the terminating NUL.
    pub len: u64,
}

/// An image found in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// How to read the image.
    pub format: Format,
    /// The image, where it lies: the container of a fat binary, an ELF file or a PTX text.
    pub image: Extent,
    /// For programs linked from relocatable device code (wrapper version 2): the containers from
    /// before the link, which hold the PTX. Empty otherwise.
    pub unlinked: Vec<Extent>,
    /// Whether the pointer was that of a wrapper structure, not of the image itself.
    pub wrapped: bool,
}

/// Finds out what lies at `addr` and measures it. Reads headers only, and text up to its end.
///
/// # Errors
///
/// [`Error::NotAnImage`] for anything else, [`Error::Unreadable`] where the memory ends too early.
pub fn locate(memory: &(impl Memory + ?Sized), addr: u64) -> Result<Located, Error> {
    // No magic number has a zero in it, and behind the zero of a short text there may be nothing.
    let mut magic = [0; 4];
    if memory.read_text(addr, &mut magic) == 0 {
        return Err(Error::Unreadable { addr, len: magic.len() });
    }
    match u32::from_le_bytes(magic) {
        WRAPPER_MAGIC => wrapper(memory, addr),
        fatbin::MAGIC => plain(Format::Fatbin, addr, container_length(memory, addr)?),
        elf::MAGIC => plain(Format::Elf, addr, elf::length(memory, addr)?),
        _ => plain(Format::Ptx, addr, text_length(memory, addr)?),
    }
}

fn plain(format: Format, addr: u64, len: u64) -> Result<Located, Error> {
    Ok(Located { format, image: Extent { addr, len }, unlinked: Vec::new(), wrapped: false })
}

/// u32 magic, u32 version, u64 address of the container, u64 file name or list of containers.
fn wrapper(memory: &(impl Memory + ?Sized), addr: u64) -> Result<Located, Error> {
    let bytes: [u8; 24] = read(memory, addr)?;
    let version = u32_at(&bytes, 4);
    let data = u64_at(&bytes, 8);
    if !(1..=2).contains(&version) {
        return Err(Error::Unsupported(format!("version {version} of the fat binary wrapper")));
    }
    let image = Extent { addr: data, len: container_length(memory, data)? };
    let mut unlinked = Vec::new();
    let list = u64_at(&bytes, 16);
    if version == 2 && list != 0 {
        for index in 0..=MAX_CONTAINERS {
            let at = list
                .checked_add(index * 8)
                .ok_or(Error::Damaged("the list of containers wraps around"))?;
            let addr = u64::from_le_bytes(read(memory, at)?);
            if addr == 0 {
                break;
            }
            if index == MAX_CONTAINERS {
                return Err(Error::Damaged("the list of containers has no end"));
            }
            unlinked.push(Extent { addr, len: container_length(memory, addr)? });
        }
    }
    Ok(Located { format: Format::Fatbin, image, unlinked, wrapped: true })
}

/// Bytes of the container at `addr`, header included.
fn container_length(memory: &(impl Memory + ?Sized), addr: u64) -> Result<u64, Error> {
    let header: [u8; fatbin::HEADER] = read(memory, addr)?;
    fatbin::container_length(&header)
}

/// Bytes up to the NUL.
fn text_length(memory: &(impl Memory + ?Sized), addr: u64) -> Result<u64, Error> {
    let mut len = 0u64;
    let mut block = [0u8; 4096];
    while len < MAX_PTX {
        let at = addr.checked_add(len).ok_or(Error::NotAnImage)?;
        let count = memory.read_text(at, &mut block);
        if let Some(end) = text_end(&block[..count])? {
            return Ok(len + end as u64);
        }
        len += count as u64;
        if count < block.len() {
            let addr = addr.checked_add(len).ok_or(Error::NotAnImage)?;
            return Err(Error::Unreadable { addr, len: 1 });
        }
    }
    Err(Error::TooLarge { what: "a PTX text", size: len, limit: MAX_PTX })
}

/// Where the NUL stands, if the bytes before it are text.
fn text_end(block: &[u8]) -> Result<Option<usize>, Error> {
    let end = block.iter().position(|&byte| byte == 0);
    let text = &block[..end.unwrap_or(block.len())];
    // Comments may hold any UTF-8, but no control characters besides white space.
    if text.iter().any(|&byte| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0b | 0x0c))
    {
        return Err(Error::NotAnImage);
    }
    Ok(end)
}

/// What a complete image of known length is, judged by its first bytes.
///
/// # Errors
///
/// [`Error::NotAnImage`] if it is none.
pub fn format_of(image: &[u8]) -> Result<Format, Error> {
    match u32_at(image, 0) {
        fatbin::MAGIC if image.len() >= fatbin::HEADER => Ok(Format::Fatbin),
        elf::MAGIC => Ok(Format::Elf),
        _ => {
            let text = image
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(&image[..0], |last| &image[..=last]);
            if text.is_empty() || text_end(text)?.is_some() {
                Err(Error::NotAnImage)
            } else {
                Ok(Format::Ptx)
            }
        }
    }
}

/// The version field is checked where a container is opened; measuring needs only the sizes.
pub(crate) fn header_fields(header: &[u8]) -> (u32, u16, u16, u64) {
    (u32_at(header, 0), u16_at(header, 4), u16_at(header, 6), u64_at(header, 8))
}
