//! How much of a device, and with whom.

use super::Malformed;
use serde::{Deserialize, Serialize};

/// A share of a device's multiprocessors in percent, 1 to 100.
///
/// It is never 0: so a device of which nothing is taken is one that has all 100 percent free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Share(u8);

impl Share {
    /// The whole device.
    pub const WHOLE: Share = Share(100);

    /// In percent.
    #[must_use]
    pub fn percent(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Share {
    type Error = Malformed;

    fn try_from(percent: u8) -> Result<Share, Malformed> {
        if (1..=100).contains(&percent) {
            return Ok(Share(percent));
        }
        Err(Malformed(format!("a share of multiprocessors is 1 to 100 percent; {percent} is none")))
    }
}

impl From<Share> for u8 {
    fn from(share: Share) -> u8 {
        share.0
    }
}

/// Whether others may use the device at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// Nobody else, and all of its memory.
    Exclusive,
    /// Others have the rest.
    Shared(Share),
}

impl Use {
    /// The multiprocessors that it takes.
    #[must_use]
    pub fn share(self) -> Share {
        match self {
            Use::Exclusive => Share::WHOLE,
            Use::Shared(share) => share,
        }
    }
}
