//! An image as a client sends it: fat binary, ELF or PTX; found, measured, decompressed and
//! searched for kernels.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Decompressed data is bounded by the library; the fuzzer, too, has little memory, so it asks for
/// less.
const LARGEST: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let _ = outboard_image::locate(data, 0);
    let _ = outboard_image::format_of(data);
    for entry in outboard_image::entries(data).take(64) {
        let Ok(entry) = entry else { break };
        let _ = entry.runs_on(90);
        if data.len() < LARGEST {
            let _ = entry.contents();
        }
    }
    let _ = outboard_image::best_ptx(data, 90);
    let _ = outboard_image::best_elf(data, 90);
    let _ = outboard_image::kernels(data, 90);
    let _ = outboard_image::elf_kernels(data);
});
