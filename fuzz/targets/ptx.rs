//! PTX text: lexer, parser and verifier. What they accept, the interpreter must be able to run, or
//! to stop with a reason: it relies on all that the verifier promises.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outboard_ptx::interp::{Flat, run};

/// Programs with more static data than this, in bytes, are not run.
const LARGEST: u64 = 1 << 20;
/// Instructions for each kernel.
const STEPS: u64 = 2000;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = outboard_image::ptx_kernels(text);
    let Ok(module) = outboard_ptx::parse(text) else { return };
    let large = module
        .globals
        .iter()
        .any(|global| global.size > LARGEST || u64::from(global.align) > LARGEST);
    if large || module.globals.len() > 64 {
        return;
    }
    for function in module.functions.iter().take(8) {
        let mut world = Flat::new(&module, 4096);
        // Parameters that point to readable memory, as often as not.
        let params = world.data.to_le_bytes().repeat(8);
        let _ = run(&module, &function.name, &params, &mut world, STEPS);
    }
});
