//! Leaving out of a fat binary what a device cannot use.

use crate::fatbin::{Entry, HEADER, Kind, MAGIC, container_length, entries};

/// A container with only those programs that a device might be given, in pieces that follow one
/// another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narrowed<'a> {
    header: [u8; HEADER],
    entries: Vec<&'a [u8]>,
}

impl<'a> Narrowed<'a> {
    /// The pieces: a header, and entries as they stand in the original.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.header.as_slice()).chain(self.entries.iter().copied())
    }

    /// Bytes of all pieces.
    #[expect(clippy::len_without_is_empty, reason = "there is always a header")]
    pub fn len(&self) -> usize {
        self.header.len() + self.entries.iter().map(|entry| entry.len()).sum::<usize>()
    }
}

/// What a driver may choose from for a device of architecture `sm`: the machine code and the PTX
/// that suit it best, and whatever is neither. `None` if nothing can be left out: the image is
/// something else than one sound container, has nothing for the device (which the driver is to find
/// out), or nothing else.
pub fn narrowed(image: &[u8], sm: u32) -> Option<Narrowed<'_>> {
    let header = image.first_chunk::<HEADER>()?;
    if container_length(header).ok()? != image.len() as u64 {
        return None;
    }
    let all: Vec<Entry<'_>> = entries(image).collect::<Result<_, _>>().ok()?;
    // Several programs may be for the same architecture: for it alone or for later ones too, or
    // parts of a whole.
    let best = |kind| {
        all.iter()
            .filter(|entry| entry.kind == kind && entry.runs_on(sm))
            .map(|entry| entry.sm)
            .max()
    };
    let (elf, ptx) = (best(Kind::Elf), best(Kind::Ptx));
    elf.or(ptx)?;
    let is_kept = |entry: &&Entry<'_>| match entry.kind {
        Kind::Elf => Some(entry.sm) == elf && entry.runs_on(sm),
        Kind::Ptx => Some(entry.sm) == ptx && entry.runs_on(sm),
        Kind::Lto | Kind::Other(_) => true,
    };
    let entries: Vec<&[u8]> = all.iter().filter(is_kept).map(|entry| entry.raw).collect();
    if entries.len() == all.len() {
        return None;
    }
    let bytes: usize = entries.iter().map(|entry| entry.len()).sum();
    let mut header = [0; HEADER];
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..6].copy_from_slice(&1u16.to_le_bytes());
    header[6..8].copy_from_slice(&(HEADER as u16).to_le_bytes());
    header[8..16].copy_from_slice(&(bytes as u64).to_le_bytes());
    Some(Narrowed { header, entries })
}
