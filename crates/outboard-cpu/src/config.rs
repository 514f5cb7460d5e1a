//! What the environment says about the device.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `OUTBOARD_CPU_DEVICES` | how many devices, 1 to 16 | 1 |
//! | `OUTBOARD_CPU_THREADS` | threads that run blocks, for each device | the processors of the machine |
//! | `OUTBOARD_CPU_MEMORY` | bytes of memory of each device; K, M, G multiply by 1024 | half of the machine's, at most 16 GiB |
//! | `OUTBOARD_CPU_DRIVER_VERSION` | the version that the driver says it has, such as 12040: functions that came later are not found | that of the interface |
//! | `OUTBOARD_CPU_COMPILE_SECONDS` | the longest that compiling one program may take, 1 to 86,400 | 300 |
//! | `OUTBOARD_CPU_QUEUE` | calls that a stream holds before one that adds to them waits, 16 to 65,536 | 65,536 |
//! | `OUTBOARD_CPU_DIVIDES` | 0: mappings are not divided into allocations (`outboard-parts-1`), as NVIDIA's driver has it | on |
//! | `OUTBOARD_CPU_CHECKPOINT` | 1: another process of the user may suspend this one (`cuCheckpointProcess*`) | off |
//! | `OUTBOARD_LOG` | if set, faults of kernels and refused images are told on the standard error | off |
//!
//! A value that makes no sense counts as none: a driver library has nowhere to complain.

use std::fs;
use std::time::Duration;

use outboard_simt::EngineConfig;
use rustix::system::sysinfo;

const MAX_DEVICES: usize = 16;
const MAX_THREADS: usize = 1024;
const MAX_SECONDS: usize = 86_400;
/// What one call adds must find room.
const MIN_QUEUED: usize = 16;
const MAX_QUEUED: usize = 1 << 16;
const MIB: u64 = 1 << 20;
/// Runtimes of today work with no older driver.
const OLDEST: u32 = 11000;
const MOST_BY_DEFAULT: u64 = 16 << 30;
/// More than any machine has, and far less than the address space.
const MOST_MEMORY: u64 = 8 << 40;

/// The settings of the process, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) devices: usize,
    pub(crate) threads: usize,
    /// Bytes of memory of each device.
    pub(crate) memory: u64,
    /// The longest that compiling one program may take.
    pub(crate) compile_time: Duration,
    /// Operations that a stream holds before a call that adds one waits.
    pub(crate) most_queued: usize,
    /// Whether mappings may be divided into allocations.
    pub(crate) divides: bool,
    /// What `cuDriverGetVersion` gives.
    pub(crate) version: u32,
    pub(crate) log: bool,
}

impl Config {
    pub(crate) fn from_environment() -> Config {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Config::new(|name| std::env::var(name).ok(), processors, machine_memory())
    }

    fn new(variable: impl Fn(&str) -> Option<String>, processors: usize, machine: u64) -> Config {
        let count = |name, most| {
            let count = variable(name)?.trim().parse().ok()?;
            (1..=most).contains(&count).then_some(count)
        };
        let memory = variable("OUTBOARD_CPU_MEMORY").and_then(|text| bytes(&text));
        let version =
            variable("OUTBOARD_CPU_DRIVER_VERSION").and_then(|text| text.trim().parse().ok());
        let version =
            version.filter(|version| (OLDEST..=outboard_abi::CUDA_VERSION).contains(version));
        Config {
            devices: count("OUTBOARD_CPU_DEVICES", MAX_DEVICES).unwrap_or(1),
            threads: count("OUTBOARD_CPU_THREADS", MAX_THREADS)
                .unwrap_or(processors.min(MAX_THREADS)),
            memory: memory
                .unwrap_or((machine / 2).clamp(64 * MIB, MOST_BY_DEFAULT))
                .next_multiple_of(MIB),
            compile_time: count("OUTBOARD_CPU_COMPILE_SECONDS", MAX_SECONDS)
                .map_or(EngineConfig::COMPILE_TIME, |seconds| Duration::from_secs(seconds as u64)),
            most_queued: count("OUTBOARD_CPU_QUEUE", MAX_QUEUED)
                .map_or(MAX_QUEUED, |operations| operations.max(MIN_QUEUED)),
            divides: variable("OUTBOARD_CPU_DIVIDES").is_none_or(|text| text.trim() != "0"),
            version: version.unwrap_or(outboard_abi::CUDA_VERSION),
            log: variable("OUTBOARD_LOG").is_some_and(|text| !text.is_empty() && text != "0"),
        }
    }
}

/// `1500000`, `512M`, `4g`, `4GiB`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (MIB..=MOST_MEMORY).contains(&bytes).then_some(bytes)
}

/// Bytes of memory that this process may have: the machine's, or those of its control group.
fn machine_memory() -> u64 {
    let info = sysinfo();
    let all = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    all.min(limit.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)], machine: u64) -> Config {
        let find = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
        };
        Config::new(find, 6, machine)
    }

    #[test]
    fn defaults() {
        let expected = Config {
            devices: 1,
            threads: 6,
            memory: 4 << 30,
            compile_time: EngineConfig::COMPILE_TIME,
            most_queued: MAX_QUEUED,
            divides: true,
            version: outboard_abi::CUDA_VERSION,
            log: false,
        };
        assert_eq!(config(&[], 8 << 30), expected);
        assert_eq!(config(&[], 1 << 40).memory, 16 << 30);
        let nonsense = [
            ("OUTBOARD_CPU_DEVICES", "17"),
            ("OUTBOARD_CPU_THREADS", "0"),
            ("OUTBOARD_CPU_MEMORY", "lots"),
            ("OUTBOARD_CPU_COMPILE_SECONDS", "0"),
            ("OUTBOARD_CPU_QUEUE", "65537"),
            ("OUTBOARD_CPU_DIVIDES", "no"),
        ];
        assert_eq!(config(&nonsense, 8 << 30), expected);
    }

    #[test]
    fn seconds() {
        assert_eq!(
            config(&[("OUTBOARD_CPU_COMPILE_SECONDS", "7")], 1 << 30).compile_time,
            Duration::from_secs(7)
        );
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("512M"), Some(512 << 20));
        assert_eq!(bytes(" 3 GiB "), Some(3 << 30));
        assert_eq!(bytes("1048576"), Some(1 << 20));
        for refused in ["", "G", "-1G", "1T", "5", "99999999999999999999", "18014398509481984K"] {
            assert_eq!(bytes(refused), None, "{refused}");
        }
    }
}
