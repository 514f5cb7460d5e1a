//! NVML's answers about a device's memory, for a session that may have only a part of it.

use outboard_abi::nvml::{nvmlMemory_t, nvmlMemory_v2_t};
use outboard_control::board::{self, Board};
use outboard_nvml_answers::Block;

/// Free and used memory of a device of `total` bytes, of which `held` are the client's and `free`
/// nobody's, for a client that may have `limit`.
fn seen(limit: u64, held: u64, free: u64) -> (u64, u64) {
    let used = held.min(limit);
    (free.min(limit - used), used)
}

/// Changes the answer of a function about a device's memory.
pub(super) fn memory(function: &str, ordinal: u32, limit: u64, blocks: &mut [Block]) {
    let Some(block) = blocks.get_mut(1) else { return };
    let held = board::get().map_or(0, |board: &Board| board.held_here(ordinal));
    match function {
        "nvmlDeviceGetMemoryInfo" => {
            let Some(mut memory) = block.get::<nvmlMemory_t>() else { return };
            (memory.free, memory.used) = seen(limit.min(memory.total), held, memory.free);
            memory.total = memory.total.min(limit);
            block.put(&memory);
        }
        "nvmlDeviceGetMemoryInfo_v2" => {
            let Some(mut memory) = block.get::<nvmlMemory_v2_t>() else { return };
            (memory.free, memory.used) = seen(limit.min(memory.total), held, memory.free);
            // What the driver keeps for itself is not of this part.
            (memory.total, memory.reserved) = (memory.total.min(limit), 0);
            block.put(&memory);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_seen_as_a_whole() {
        assert_eq!(seen(100, 30, 1000), (70, 30));
        assert_eq!(seen(100, 130, 1000), (0, 100));
        assert_eq!(seen(100, 30, 5), (5, 30), "others have the rest");
    }
}
