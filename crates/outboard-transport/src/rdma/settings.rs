//! How much may be under way.

use std::io;
use std::ops::RangeInclusive;

use outboard_rdma::Mtu;

/// What one side is ready for; the smaller values of both count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Messages under way, each way.
    pub depth: u32,
    /// Bytes of a message. The server locks this many for each of the depth.
    pub message: u32,
    /// Bytes under way, each way. The client locks twice this many, the server once.
    pub ring: u32,
    /// Packets carry no more than this, whatever the links carry.
    pub mtu: Mtu,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { depth: 128, message: 64 << 10, ring: 2 << 20, mtu: Mtu::MOST }
    }
}

const DEPTHS: RangeInclusive<u32> = 4..=1024;
const MESSAGES: RangeInclusive<u32> = 1 << 10..=1 << 20;
const RINGS: RangeInclusive<u32> = 4 << 10..=64 << 20;

/// Messages without bytes that may be under way besides. A side says what it has used up at every
/// quarter of the depth and of the ring's bytes, so at most eight times before the peer looks; the
/// last one says that it ends.
pub(super) const BARE: u32 = 12;

impl Settings {
    /// Refuses what nobody needs, and would overflow numbers.
    pub(super) fn check(self) -> io::Result<Settings> {
        let sizes = [
            ("messages under way", self.depth, DEPTHS),
            ("bytes of a message", self.message, MESSAGES),
            ("bytes under way", self.ring, RINGS),
        ];
        match sizes.into_iter().find(|(_, size, sizes)| !sizes.contains(size)) {
            None => Ok(self),
            Some((what, size, sizes)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "an RDMA connection has {} to {} {what}, not {size}",
                    sizes.start(),
                    sizes.end()
                ),
            )),
        }
    }

    /// What both sides are ready for.
    pub(super) fn and(self, other: Settings) -> Settings {
        Settings {
            depth: self.depth.min(other.depth),
            message: self.message.min(other.message),
            ring: self.ring.min(other.ring),
            mtu: self.mtu.min(other.mtu),
        }
    }

    /// Bytes of a ring, for places in memory.
    pub(super) fn ring(self) -> usize {
        self.ring as usize
    }

    /// Works that may be under way each way.
    pub(super) fn works(self) -> u32 {
        self.depth + BARE
    }
}
