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

/// A session's connections: one with commands, lanes, and one to spare.
pub const CONNECTIONS: u64 = 10;
/// With less under way, connections would wait all the time.
const LEAST_RING: u32 = 256 << 10;

const DEPTHS: RangeInclusive<u32> = 4..=1024;
const MESSAGES: RangeInclusive<u32> = 1 << 10..=1 << 20;
const RINGS: RangeInclusive<u32> = 4 << 10..=64 << 20;

/// Messages without bytes that may be under way besides. A side says what it has used up at every
/// quarter of the depth and of the ring's bytes, so at most eight times before the peer looks; the
/// last one says that it ends.
pub(super) const BARE: u32 = 12;

impl Settings {
    /// The usual ones with so many messages under way, and packets of at most so many bytes.
    #[must_use]
    pub fn with(depth: u32, packet: u32) -> Settings {
        let usual = Settings::default();
        Settings { depth, mtu: Mtu::within(packet).unwrap_or(usual.mtu), ..usual }
    }

    /// Refuses what nobody needs, and would overflow numbers.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] with a sentence that names the bounds.
    pub fn check(self) -> io::Result<Settings> {
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

    /// With a smaller ring, if this process may lock so little that not all of a session's
    /// connections had theirs: 8 MiB are usual.
    #[must_use]
    pub fn within_locked_memory(self) -> Settings {
        self.within(outboard_rdma::locked_memory_limit())
    }

    fn within(self, limit: u64) -> Settings {
        let page = 1 << 12;
        let ring = limit / CONNECTIONS / 2 / page * page;
        let ring = u32::try_from(ring).map_or(self.ring, |ring| ring.max(LEAST_RING));
        Settings { ring: ring.min(self.ring), ..self }
    }

    /// Bytes that a client's connection locks.
    pub fn locked_by_client(self) -> u64 {
        2 * u64::from(self.ring)
    }

    /// Bytes that a server's connection locks.
    pub fn locked_by_server(self) -> u64 {
        u64::from(self.ring) + u64::from(self.works()) * u64::from(self.message)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_all_connections_fit_into_what_may_be_locked() {
        let usual = Settings::default();
        assert_eq!(usual.within(u64::MAX), usual);
        assert_eq!(usual.within(64 << 20), usual);
        let little = usual.within(8 << 20);
        assert!(little.locked_by_client() * CONNECTIONS <= 8 << 20, "{little:?}");
        assert!(little.locked_by_client() * CONNECTIONS > 7 << 20, "{little:?}");
        assert_eq!(usual.within(64 << 10).ring, LEAST_RING, "an error will name the limit");
        assert!(little.check().is_ok());
    }
}
