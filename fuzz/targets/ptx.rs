//! PTX text: lexer, parser and verifier.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = outboard_ptx::parse(text);
        let _ = outboard_image::ptx_kernels(text);
    }
});
