//! What MPI carries in place of a message whose bytes go from worker to worker.

/// Bytes of a header.
pub(crate) const BYTES: usize = 64;

/// What tells headers from messages: the same in all ranks of a job, and in no other one.
pub(crate) type Mark = [u8; 16];

/// A message that a rank's worker keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The link over which it comes.
    pub(crate) link: u32,
    /// Its number there.
    pub(crate) number: u64,
    /// How long it is.
    pub(crate) bytes: u64,
}

impl Header {
    pub(crate) fn encode(&self, mark: &Mark) -> [u8; BYTES] {
        let mut all = [0; BYTES];
        all[..16].copy_from_slice(mark);
        all[16..20].copy_from_slice(&self.link.to_ne_bytes());
        all[24..32].copy_from_slice(&self.number.to_ne_bytes());
        all[32..40].copy_from_slice(&self.bytes.to_ne_bytes());
        all
    }

    /// None if it is a message of the program's.
    pub(crate) fn of(all: &[u8; BYTES], mark: &Mark) -> Option<Header> {
        let word = |at: usize| Some(u64::from_ne_bytes(all[at..at + 8].try_into().ok()?));
        if all[..16] != mark[..] || all[40..] != [0; 24] {
            return None;
        }
        Some(Header { link: word(16)? as u32, number: word(24)?, bytes: word(32)? })
    }
}
