//! How many hardware queues a worker's device has.
//!
//! NVIDIA's driver spreads a process's streams over so many queues, eight unless it is told
//! otherwise, and takes a channel of the device for each. If two streams share a queue and one is
//! blocked, the other is blocked too, even if the first waits for it; and a worker has streams
//! beside the program's. So a worker gets many, as long as few share the device's channels: an
//! H100 had channels for 13 workers with 32 queues each, or for 55 with eight.

/// NVIDIA's variable.
pub(super) const VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// The queues of a further worker, where so many are on so many devices.
pub(super) fn of_another(workers: usize, devices: usize) -> u32 {
    match workers / devices.max(1) {
        0..4 => 32,
        4..12 => 8,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_enough_for_64_workers_of_a_device() {
        let all = (0..64).map(|workers| of_another(workers, 1)).sum::<u32>();
        assert!(all <= 13 * 32, "{all}");
    }

    #[test]
    fn workers_of_several_devices_share_no_channels() {
        assert_eq!((of_another(31, 8), of_another(32, 8), of_another(3, 0)), (32, 8, 32));
    }
}
