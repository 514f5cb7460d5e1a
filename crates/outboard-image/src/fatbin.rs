//! Fat binary containers: a header and entries, each the program for one architecture.

use std::borrow::Cow;

use crate::compress;
use crate::error::Error;
use crate::locate::{MAX_IMAGE, header_fields};
use crate::memory::{u16_at, u32_at, u64_at};

/// First four bytes of a container.
pub const MAGIC: u32 = 0xBA55_ED50;
/// Bytes of a container's header.
pub(crate) const HEADER: usize = 16;
/// Bytes of the fixed part of an entry's header.
const ENTRY: usize = 64;
/// Bytes that decompressing one entry may give.
pub const MAX_DECOMPRESSED: u64 = 1 << 28;

/// Bytes of a container, header included, from its header.
pub(crate) fn container_length(header: &[u8; HEADER]) -> Result<u64, Error> {
    let (magic, version, header_size, size) = header_fields(header);
    if magic != MAGIC {
        return Err(Error::Damaged("a fat binary container does not begin with its magic number"));
    }
    if version != 1 {
        return Err(Error::Unsupported(format!("version {version} of fat binary containers")));
    }
    if usize::from(header_size) < HEADER {
        return Err(Error::Damaged("the header of a fat binary container is too short"));
    }
    let total = size.saturating_add(u64::from(header_size));
    if total > MAX_IMAGE {
        return Err(Error::TooLarge { what: "a fat binary", size: total, limit: MAX_IMAGE });
    }
    Ok(total)
}

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// PTX text.
    Ptx,
    /// Machine code.
    Elf,
    /// Intermediate code for link-time optimisation.
    Lto,
    /// A kind that Outboard does not know, by its number in the header.
    Other(u16),
}

/// How an entry's payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// One LZ4 block, without a frame.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

/// For which devices of its architecture an entry works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Specificity {
    /// This and later ones.
    Portable,
    /// Architecture family (`sm_100f`).
    Family,
    /// This very architecture (`sm_90a`).
    Exact,
}

/// One program of a container.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The language of the program.
    pub kind: Kind,
    /// Architecture as a number, 90 for sm_90.
    pub sm: u32,
    /// Which devices of that architecture can run it.
    pub specificity: Specificity,
    /// Version of the PTX language, or of the ELF layout.
    pub version: (u16, u16),
    /// All flag bits as stored.
    pub flags: u64,
    /// File name given when the container was built, for humans.
    pub name: Option<&'a str>,
    /// `None` for a plain payload.
    pub compression: Option<Compression>,
    /// As stored: compressed, or plain with padding.
    pub payload: &'a [u8],
    /// Bytes after decompression; equals the payload's length for plain entries.
    pub size: u64,
    /// Header and payload together, for forwarding the entry as it is.
    pub raw: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The program itself. PTX comes without its terminating NULs.
    ///
    /// # Errors
    ///
    /// If the contents do not decompress, or to more than [`MAX_DECOMPRESSED`].
    pub fn contents(&self) -> Result<Cow<'a, [u8]>, Error> {
        let mut contents = match self.compression {
            None => Cow::Borrowed(self.payload),
            Some(_) if self.size > MAX_DECOMPRESSED => {
                return Err(Error::TooLarge {
                    what: "a program",
                    size: self.size,
                    limit: MAX_DECOMPRESSED,
                });
            }
            Some(Compression::Lz4) => Cow::Owned(compress::lz4(self.payload, self.size)?),
            Some(Compression::Zstd) => Cow::Owned(compress::zstd(self.payload, self.size)?),
        };
        if self.kind == Kind::Ptx {
            let end = contents.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            match &mut contents {
                Cow::Borrowed(bytes) => *bytes = &bytes[..end],
                Cow::Owned(bytes) => bytes.truncate(end),
            }
        }
        Ok(contents)
    }

    /// Whether a device of architecture `sm` can run this program, compiling it first if it is PTX.
    pub fn runs_on(&self, sm: u32) -> bool {
        match (self.kind, self.specificity) {
            (_, Specificity::Exact) => self.sm == sm,
            (_, Specificity::Family) => self.sm / 10 == sm / 10 && self.sm <= sm,
            (Kind::Elf, Specificity::Portable) => self.sm / 10 == sm / 10 && self.sm <= sm,
            (_, Specificity::Portable) => self.sm <= sm,
        }
    }
}

/// The entries of one container, or of several that lie one behind the other.
///
/// Stops with an error at the first damaged entry.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    /// End of the current container.
    end: usize,
}

/// The entries of the container (or containers) in `bytes`.
pub fn entries(bytes: &[u8]) -> Entries<'_> {
    Entries { bytes, at: 0, end: 0 }
}

impl<'a> Entries<'a> {
    /// Steps into the next container if the current one is through. False at the end of all.
    fn open(&mut self) -> Result<bool, Error> {
        while self.at >= self.end {
            // Containers are aligned to 8 bytes; zeros may stand between them.
            self.at = self.end.next_multiple_of(8).min(self.bytes.len());
            if self.bytes[self.at..].iter().all(|&byte| byte == 0) {
                return Ok(false);
            }
            let header = self.bytes[self.at..]
                .first_chunk()
                .ok_or(Error::Truncated("a fat binary header"))?;
            let total = container_length(header)?;
            let header_size = usize::from(u16_at(header, 6));
            let left = (self.bytes.len() - self.at) as u64;
            if total > left {
                return Err(Error::Truncated("a fat binary container"));
            }
            self.end = self.at + total as usize;
            self.at += header_size;
        }
        Ok(true)
    }

    fn entry(&mut self) -> Result<Entry<'a>, Error> {
        let rest = &self.bytes[self.at..self.end];
        if rest.len() < ENTRY {
            return Err(Error::Truncated("the header of a fat binary entry"));
        }
        let header_size = u32_at(rest, 0x04) as usize;
        let padded = u64_at(rest, 0x08);
        let compressed = u32_at(rest, 0x10) as usize;
        let flags = u64_at(rest, 0x28);
        let total = padded.saturating_add(header_size as u64);
        if header_size < ENTRY {
            return Err(Error::Damaged("the header of a fat binary entry is too short"));
        }
        if total > rest.len() as u64 {
            return Err(Error::Truncated("a fat binary entry"));
        }
        let raw = &rest[..total as usize];
        let stored = &raw[header_size..];
        let compression = match flags {
            flags if flags & 0x2000 != 0 => Some(Compression::Lz4),
            flags if flags & 0x8000 != 0 => Some(Compression::Zstd),
            _ => None,
        };
        let (payload, size) = match compression {
            Some(_) => {
                let payload =
                    stored.get(..compressed).ok_or(Error::Truncated("a compressed program"))?;
                (payload, u64_at(rest, 0x38))
            }
            None => (stored, stored.len() as u64),
        };
        let name_at = u32_at(rest, 0x20) as usize;
        let name_len = u32_at(rest, 0x24) as usize;
        let name = name_at
            .checked_add(name_len)
            .and_then(|end| raw[..header_size].get(name_at..end))
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .map(|name| name.trim_end_matches('\0'))
            .filter(|name| !name.is_empty());
        self.at += total as usize;
        Ok(Entry {
            kind: match u16_at(rest, 0) {
                1 => Kind::Ptx,
                2 => Kind::Elf,
                8 => Kind::Lto,
                other => Kind::Other(other),
            },
            sm: u32_at(rest, 0x1C),
            specificity: match flags {
                flags if flags & 0x10_0000 != 0 => Specificity::Exact,
                flags if flags & 0x20_0000 != 0 => Specificity::Family,
                _ => Specificity::Portable,
            },
            version: (u16_at(rest, 0x1A), u16_at(rest, 0x18)),
            flags,
            name,
            compression,
            payload,
            size,
            raw,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = match self.open() {
            Ok(true) => self.entry(),
            Ok(false) => return None,
            Err(error) => Err(error),
        };
        if found.is_err() {
            // Nothing behind damage can be trusted.
            self.bytes = &[];
            (self.at, self.end) = (0, 0);
        }
        Some(found)
    }
}

/// The newest PTX in the container that a device of architecture `sm` can run, if there is any.
///
/// # Errors
///
/// If the container is damaged.
pub fn best_ptx(bytes: &[u8], sm: u32) -> Result<Option<Entry<'_>>, Error> {
    best(bytes, sm, Kind::Ptx)
}

/// The machine code in the container that suits a device of architecture `sm` best, if there is
/// any.
///
/// # Errors
///
/// If the container is damaged.
pub fn best_elf(bytes: &[u8], sm: u32) -> Result<Option<Entry<'_>>, Error> {
    best(bytes, sm, Kind::Elf)
}

/// What a driver loads of the container on a device of architecture `sm`, the first choice first:
/// machine code, or else PTX.
pub(crate) fn choices(bytes: &[u8], sm: u32) -> Result<impl Iterator<Item = Entry<'_>>, Error> {
    Ok(best_elf(bytes, sm)?.into_iter().chain(best_ptx(bytes, sm)?))
}

fn best(bytes: &[u8], sm: u32, kind: Kind) -> Result<Option<Entry<'_>>, Error> {
    let mut best: Option<Entry<'_>> = None;
    for entry in entries(bytes) {
        let entry = entry?;
        let rank = |entry: &Entry<'_>| (entry.sm, entry.specificity != Specificity::Portable);
        if entry.kind == kind
            && entry.runs_on(sm)
            && best.as_ref().is_none_or(|best| rank(&entry) > rank(best))
        {
            best = Some(entry);
        }
    }
    Ok(best)
}
