//! The ranges of addresses that servers give out: each session has one, so that two servers of a
//! program never give out the same address.

use core::fmt;
use core::ops::Range;

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A range of addresses in which a worker's driver places what it places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    address: u64,
    bytes: u64,
}

/// First address of the first window. Below it are what systems map from a third of the address
/// space upwards, and page-locked memory of clients.
const FIRST: u64 = 0x3000_0000_0000;
/// Bytes of each window.
const BYTES: u64 = 2 << 40;
/// No window reaches beyond this address: above it are stacks, libraries, and what systems map from
/// the top downwards.
const END: u64 = 0x7c00_0000_0000;
/// Systems load a program at 0x555555554000 or up to 1 TiB above. No window is there: the worker's
/// program would split it, and a driver may need most of it in one piece.
const PROGRAMS: Range<u64> = 0x5400_0000_0000..0x5800_0000_0000;
/// Windows from the first on that are free in most programs: sanitizers have memory above them.
const MOSTLY_FREE: u32 = 16;
/// Addresses and sizes are multiples of this, the largest page of any processor.
const GRANULE: u64 = 64 << 10;

impl Window {
    /// How many there are.
    pub const COUNT: u32 = ((PROGRAMS.start - FIRST + END - PROGRAMS.end) / BYTES) as u32;

    /// The window of this number, if there is one.
    pub fn numbered(number: u32) -> Option<Window> {
        Window::all().nth(number as usize)
    }

    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Window> + Clone {
        let addresses = (FIRST..END).step_by(BYTES as usize);
        addresses
            .filter(|address| !PROGRAMS.contains(address))
            .map(|address| Window { address, bytes: BYTES })
    }

    /// Those that are free in most programs, in order.
    pub fn mostly_free() -> impl Iterator<Item = Window> + Clone {
        Window::all().take(MOSTLY_FREE as usize)
    }

    /// Its number, if it is one of those above.
    pub fn number(&self) -> Option<u32> {
        Window::all().position(|window| window == *self).map(|number| number as u32)
    }

    /// Its addresses.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }

    /// Whether all of these bytes lie in it.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        let Range { start, end } = self.range();
        (start..end).contains(&address) && bytes <= end - address
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

impl Encode for Window {
    fn encode(&self, writer: &mut Writer) {
        writer.u64(self.address);
        writer.u64(self.bytes);
    }
}

impl<'a> Decode<'a> for Window {
    fn decode(reader: &mut Reader<'a>) -> Result<Window, DecodeError> {
        let (address, bytes) = (reader.u64()?, reader.u64()?);
        let whole = |value: u64| value != 0 && value.is_multiple_of(GRANULE);
        match address.checked_add(bytes) {
            Some(_) if whole(address) && whole(bytes) => Ok(Window { address, bytes }),
            _ => Err(DecodeError::Invalid { what: "window of addresses", value: address }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode_all;
    use proptest::prelude::*;

    #[test]
    fn windows_follow_each_other_and_know_their_numbers() {
        let all: Vec<Window> = Window::all().collect();
        assert_eq!((all.len() as u32, Window::COUNT), (36, 36));
        assert_eq!(
            (all[0].range().start, all[35].range().end),
            (0x3000_0000_0000, 0x7c00_0000_0000)
        );
        let follows = |pair: &[Window]| pair[0].range().end == pair[1].range().start;
        for (number, pair) in all.windows(2).enumerate() {
            let between = pair[0].range().end..pair[1].range().start;
            assert!(follows(pair) || between == PROGRAMS);
            assert_eq!(pair[0].number(), Some(number as u32));
        }
        assert_eq!(all.windows(2).filter(|pair| !follows(pair)).count(), 1);
        assert_eq!((all[35].number(), Window::numbered(36)), (Some(35), None));
        assert_eq!(Window::numbered(u32::MAX), None);
        assert!(Window::mostly_free().all(|window| window.range().end <= 0x5000_0000_0000));
        assert_eq!(all[1].to_string(), "0x320000000000");
    }

    #[test]
    fn what_reaches_beyond_is_not_in_it() {
        let window = Window::numbered(3).unwrap();
        let Range { start, end } = window.range();
        assert!(
            window.contains(start, end - start)
                && window.contains(end - 1, 1)
                && window.contains(start, 0)
        );
        for (address, bytes) in
            [(start - 1, 1), (end, 0), (end - 1, 2), (start, u64::MAX), (0, 1), (u64::MAX, 1)]
        {
            assert!(!window.contains(address, bytes), "{address:#x} {bytes:#x}");
        }
    }

    #[test]
    fn others_have_no_number_and_some_are_none() {
        let window = |address: u64, bytes: u64| {
            decode_all::<Window>(&[address.to_le_bytes(), bytes.to_le_bytes()].concat())
        };
        for (address, bytes) in [
            (FIRST + GRANULE, BYTES),
            (FIRST, GRANULE),
            (GRANULE, BYTES),
            (END, BYTES),
            (PROGRAMS.start, BYTES),
            (PROGRAMS.start + BYTES, BYTES),
        ] {
            assert_eq!(window(address, bytes).unwrap().number(), None, "{address:#x} {bytes:#x}");
        }
        for (address, bytes) in
            [(0, BYTES), (FIRST, 0), (FIRST + 1, BYTES), (FIRST, 4096), (!0xffff, GRANULE)]
        {
            assert!(window(address, bytes).is_err(), "{address:#x} {bytes:#x}");
        }
    }

    proptest! {
        #[test]
        fn a_window_that_is_read_is_a_range(address: u64, bytes: u64) {
            let encoded = [address.to_le_bytes(), bytes.to_le_bytes()].concat();
            if let Ok(window) = decode_all::<Window>(&encoded) {
                let Range { start, end } = window.range();
                prop_assert!(start < end && window.contains(start, end - start));
                let mut writer = Writer::new();
                writer.put(&window);
                prop_assert_eq!(writer.into_vec(), encoded);
            }
        }
    }
}
