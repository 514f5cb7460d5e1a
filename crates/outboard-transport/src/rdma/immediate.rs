//! The number that comes with every message.

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Immediate {
    /// How many messages with bytes the sender has used up so far: the low half of the number.
    pub(super) used: u16,
    /// Whether this message has bytes, and counts.
    pub(super) kind: Kind,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of the stream.
    Bytes,
    /// Nothing but the number.
    Bare,
    /// The last one.
    End,
}

impl Immediate {
    pub(super) fn encode(self) -> u32 {
        let kind = match self.kind {
            Kind::Bytes => 0,
            Kind::Bare => 1,
            Kind::End => 2,
        };
        u32::from(self.used) | kind << 16
    }

    /// None for a number that this release does not send.
    pub(super) fn decode(number: u32) -> Option<Immediate> {
        let kind = match number >> 16 {
            0 => Kind::Bytes,
            1 => Kind::Bare,
            2 => Kind::End,
            _ => return None,
        };
        Some(Immediate { used: number as u16, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_travel() {
        for kind in [Kind::Bytes, Kind::Bare, Kind::End] {
            let sent = Immediate { used: 0xfedc, kind };
            assert_eq!(Immediate::decode(sent.encode()), Some(sent));
        }
        assert_eq!(Immediate::decode(3 << 16), None);
        assert_eq!(Immediate::decode(u32::MAX), None);
    }
}
