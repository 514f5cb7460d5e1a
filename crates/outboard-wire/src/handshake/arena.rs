//! What a server says of the addresses that the client may give to memory itself.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The kind of this part: [`Arena`] in the welcome of a session.
pub const ARENA: Kind = Kind(8);

/// Addresses of a session's window at which the driver places nothing by itself, and what the
/// client needs to know to allocate there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    /// The first address, a multiple of `granule`.
    pub address: u64,
    /// How many there are, a multiple of `granule`.
    pub bytes: u64,
    /// Blocks of memory are multiples of so many bytes, and lie at such; a power of two.
    pub granule: u64,
    /// Whether the worker is to be told which parts of a block are allocated.
    pub told: bool,
}

impl Encode for Arena {
    fn encode(&self, writer: &mut Writer) {
        writer.u64(self.address);
        writer.u64(self.bytes);
        writer.u64(self.granule);
        writer.put(&self.told);
    }
}

impl<'a> Decode<'a> for Arena {
    fn decode(reader: &mut Reader<'a>) -> Result<Arena, DecodeError> {
        let (address, bytes, granule, told) =
            (reader.u64()?, reader.u64()?, reader.u64()?, reader.get()?);
        let arena = Arena { address, bytes, granule, told };
        // Pages of devices have 4 KiB at least; half a terabyte is none.
        let fits = (1 << 12..1 << 39).contains(&granule) && granule.is_power_of_two();
        let whole = |value: u64| value != 0 && value.is_multiple_of(granule);
        let is_range =
            fits && whole(address) && whole(bytes) && address.checked_add(bytes).is_some();
        if is_range {
            Ok(arena)
        } else {
            Err(DecodeError::Invalid { what: "arena of addresses", value: address })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extensions;
    use super::*;

    #[test]
    fn only_ranges_of_whole_granules_are_arenas() {
        let arena = Arena { address: 1 << 44, bytes: 1 << 40, granule: 2 << 20, told: true };
        let read = |arena: Arena| {
            let mut more = Extensions::default();
            more.set(ARENA, &arena);
            more.get::<Arena>(ARENA)
        };
        assert_eq!(read(arena), Ok(Some(arena)));
        for broken in [
            Arena { address: 0, ..arena },
            Arena { address: (1 << 44) + 4096, ..arena },
            Arena { bytes: 0, ..arena },
            Arena { bytes: 1 << 20, ..arena },
            Arena { address: u64::MAX << 21, ..arena },
            Arena { granule: 0, ..arena },
            Arena { granule: 3 << 20, ..arena },
            Arena { granule: 1 << 40, ..arena },
        ] {
            assert!(read(broken).is_err(), "{broken:?}");
        }
    }
}
