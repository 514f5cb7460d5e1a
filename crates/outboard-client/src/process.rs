//! How this process describes itself to a server.

use outboard_wire::handshake::Process;

/// This process.
pub(crate) fn this() -> Process {
    Process { id: std::process::id(), machine: machine() }
}

/// Processes that share a kernel and a namespace of process numbers can name each other, and no
/// others: neither those of a container on the same machine nor those of another machine.
fn machine() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => {
            hash(boot.iter().chain(namespace.as_os_str().as_encoded_bytes()))
        }
        // Better unknown than taken for another machine's.
        _ => 0,
    }
}

/// FNV-1a: the same in every release, as two programs on a machine may be of two releases.
fn hash<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let process = this();
        assert_eq!(process.id, std::process::id());
        assert_eq!(process, this());
        assert_ne!(process.machine, 0);
    }

    #[test]
    fn the_hash_is_the_standard_one() {
        assert_eq!(hash(b"a".iter()), 0xaf63_dc4c_8601_ec8c);
    }
}
