//! Boxes of bytes: rows and slices in pitched memory, and the order in which their bytes travel.
//!
//! What travels is *packed*: row after row, slice after slice, without what lies between the rows.
//! A range of the packed bytes is up to five smaller boxes, see [`Extent::parts`].

use core::ops::Range;

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::names::DevicePtr;
use crate::names::ObjectId;

/// The size of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

/// Where the rows of a box lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Bytes from one slice to the next.
    pub slice: u64,
}

/// A box within a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins: bytes within a row, row, slice.
    pub at: (u64, u64, u64),
    /// Its size.
    pub extent: Extent,
    /// Where its bytes begin among the packed bytes of the whole.
    pub packed: u64,
}

impl Part {
    /// Where it begins in an array where the box begins `at`: bytes within a row, row, slice.
    /// `None` if no number is so large.
    pub fn within(&self, at: (u64, u64, u64)) -> Option<(u64, u64, u64)> {
        let (x, y, z) = self.at;
        Some((at.0.checked_add(x)?, at.1.checked_add(y)?, at.2.checked_add(z)?))
    }
}

/// What one side of a copy is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Device memory, from this address on.
    Linear(DevicePtr),
    /// The array of that name.
    Array(ObjectId),
}

/// One side of a copy of a box, on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What it is in.
    pub storage: Storage,
    /// Where its rows lie; not used for arrays.
    pub layout: Layout,
    /// Where it begins: bytes within a row, row, slice. Part of the address for linear memory.
    pub at: (u64, u64, u64),
}

impl Extent {
    /// A box of one row.
    pub fn row(bytes: u64) -> Extent {
        Extent { width: bytes, height: 1, depth: 1 }
    }

    /// Bytes of the box, if there are fewer than 2⁶⁴.
    pub fn bytes(&self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// The boxes that make up a range of the packed bytes, in their order: part of a row, whole
    /// rows, whole slices, rows, part of a row.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part> + use<> {
        let Extent { width, height, .. } = *self;
        let (mut at, end) = (range.start, if self.is_empty() { range.start } else { range.end });
        core::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|left| *left > 0)?;
            let (x, row) = (at % width, at / width);
            let (y, z) = (row % height, row / height);
            let (rows, row_bytes) = (left / width, width);
            let extent = if x != 0 || rows == 0 {
                Extent::row(left.min(row_bytes - x))
            } else if y != 0 || rows < height {
                Extent { width, height: rows.min(height - y), depth: 1 }
            } else {
                Extent { width, height, depth: rows / height }
            };
            let part = Part { at: (x, y, z), extent, packed: at };
            at += extent.width * extent.height * extent.depth;
            Some(part)
        })
    }

    /// Every row's offset by `layout` and number of bytes, in order.
    pub fn rows(&self, layout: Layout) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Extent { width, height, depth } = *self;
        (0..depth).flat_map(move |z| {
            (0..height).map(move |y| (z * layout.slice + y * layout.pitch, width))
        })
    }
}

impl Layout {
    /// Without anything between rows.
    pub fn packed(extent: Extent) -> Layout {
        Layout { pitch: extent.width, slice: extent.width.saturating_mul(extent.height) }
    }

    /// Whether a box lies in one piece.
    pub fn is_packed(&self, extent: Extent) -> bool {
        let rows = extent.height <= 1 || self.pitch == extent.width;
        rows && (extent.depth <= 1 || self.slice == extent.width.saturating_mul(extent.height))
    }

    /// Where a byte of a row of a slice lies.
    pub fn offset(&self, (x, y, z): (u64, u64, u64)) -> Option<u64> {
        z.checked_mul(self.slice)?.checked_add(y.checked_mul(self.pitch)?)?.checked_add(x)
    }

    /// Bytes from the first to behind the last byte of a box.
    pub fn span(&self, extent: Extent) -> Option<u64> {
        if extent.is_empty() {
            return Some(0);
        }
        self.offset((extent.width, extent.height - 1, extent.depth - 1))
    }
}

impl Region {
    /// The region of a part of the box that this is a region of.
    pub fn part(&self, part: &Part) -> Option<Region> {
        match self.storage {
            Storage::Linear(address) => {
                let address = address.checked_add(self.layout.offset(part.at)?)?;
                Some(Region { storage: Storage::Linear(address), ..*self })
            }
            Storage::Array(_) => Some(Region { at: part.within(self.at)?, ..*self }),
        }
    }
}

impl Encode for Extent {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&(self.width, self.height, self.depth));
    }
}

impl<'a> Decode<'a> for Extent {
    fn decode(reader: &mut Reader<'a>) -> Result<Extent, DecodeError> {
        let (width, height, depth) = reader.get()?;
        Ok(Extent { width, height, depth })
    }
}

impl Encode for Region {
    fn encode(&self, writer: &mut Writer) {
        let (kind, name) = match self.storage {
            Storage::Linear(address) => (0u8, address.0),
            Storage::Array(ObjectId(name)) => (1, name),
        };
        writer.put(&(kind, name));
        writer.put(&(self.layout.pitch, self.layout.slice));
        writer.put(&self.at);
    }
}

impl<'a> Decode<'a> for Region {
    fn decode(reader: &mut Reader<'a>) -> Result<Region, DecodeError> {
        let (kind, name): (u8, u64) = reader.get()?;
        let storage = match kind {
            0 => Storage::Linear(DevicePtr(name)),
            1 => Storage::Array(ObjectId(name)),
            _ => return Err(DecodeError::Invalid { what: "kind of memory", value: kind.into() }),
        };
        let (pitch, slice) = reader.get()?;
        Ok(Region { storage, layout: Layout { pitch, slice }, at: reader.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Parts of any ranges bring every byte of a box to where a plain loop does.
        #[test]
        fn parts_are_the_box(
            (width, height, depth) in (1u64..40, 1u64..12, 1u64..6),
            (gap, skip) in (0u64..9, 0u64..5),
            cuts in prop::collection::vec(0u64..3000, 0..6),
        ) {
            let extent = Extent { width, height, depth };
            let layout = Layout { pitch: width + gap, slice: (width + gap) * (height + skip) };
            let total = extent.bytes().unwrap();
            let mut cuts: Vec<u64> = cuts.into_iter().map(|cut| cut % (total + 1)).chain([0, total]).collect();
            cuts.sort_unstable();
            let mut found = Vec::new();
            for pair in cuts.windows(2) {
                let mut packed = pair[0];
                let parts: Vec<Part> = extent.parts(pair[0]..pair[1]).collect();
                prop_assert!(parts.len() <= 5);
                for part in parts {
                    prop_assert_eq!(part.packed, packed);
                    let base = layout.offset(part.at).unwrap();
                    for (offset, bytes) in part.extent.rows(layout) {
                        found.extend((0..bytes).map(|x| base + offset + x));
                        packed += bytes;
                    }
                }
                prop_assert_eq!(packed, pair[1]);
            }
            let plain: Vec<u64> = (0..depth)
                .flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (x, y, z))))
                .map(|(x, y, z)| x + y * layout.pitch + z * layout.slice)
                .collect();
            prop_assert_eq!(&found, &plain);
            prop_assert_eq!(layout.span(extent), Some(plain.last().unwrap() + 1));
            prop_assert_eq!(layout.is_packed(extent), plain.last().unwrap() + 1 == total);
        }

        #[test]
        fn regions_come_back(kind: bool, name: u64, pitch: u64, slice: u64, at: (u64, u64, u64)) {
            let storage = if kind { Storage::Array(ObjectId(name)) } else { Storage::Linear(DevicePtr(name)) };
            let region = Region { storage, layout: Layout { pitch, slice }, at };
            let mut writer = Writer::new();
            writer.put(&region);
            let bytes = writer.into_vec();
            prop_assert_eq!(Reader::new(&bytes).get::<Region>().unwrap(), region);
        }
    }

    #[test]
    fn absurd_boxes_are_told() {
        let huge = Extent { width: u64::MAX, height: 2, depth: 1 };
        assert_eq!(huge.bytes(), None);
        assert_eq!(
            Layout { pitch: u64::MAX, slice: 0 }.span(Extent { width: 1, height: 3, depth: 1 }),
            None
        );
        assert_eq!(Extent::default().parts(0..10).count(), 0);
    }
}
