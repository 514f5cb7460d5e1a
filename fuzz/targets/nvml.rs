//! The arguments of a query as a client sends them: the first two bytes choose the function.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outboard_nvml::{Argument, FUNCTIONS, LARGEST, decode, written};

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first_chunk::<2>() else { return };
    let function = &FUNCTIONS[u16::from_le_bytes(*choice) as usize % FUNCTIONS.len()];
    let Ok(arguments) = decode(function, bytes) else { return };
    // What the function would write, as far as any: its memory is at least as long as what it
    // begins with.
    let memory: Vec<Vec<u8>> = arguments
        .iter()
        .map(|argument| match argument {
            Argument::Memory { room, given } => {
                assert!(*room <= LARGEST && given.len() <= *room);
                let mut memory = vec![0xff; *room];
                memory[..given.len()].copy_from_slice(given);
                memory
            }
            _ => Vec::new(),
        })
        .collect();
    for (index, param) in function.params.iter().enumerate() {
        if param.is_output() && arguments[index] != Argument::Null {
            assert!(
                written(function, &arguments, index, |index| &memory[index]).len()
                    <= memory[index].len()
            );
        }
    }
});
