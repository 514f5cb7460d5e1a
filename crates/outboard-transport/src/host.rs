//! Telling whether two processes run on one machine.

/// A number that all processes of a machine compute alike, inside containers too, until the machine
/// restarts; 0 if it cannot be determined.
pub fn id() -> u64 {
    std::fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |boot| hash(&boot))
}

/// FNV-1a: the same in every release, as two programs on a machine may be of two releases.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_knows_itself() {
        assert_ne!(id(), 0);
        assert_eq!(id(), id());
    }
}
