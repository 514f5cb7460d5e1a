//! Compiled code against the interpreter: a kernel for each form of the scalar instructions, with
//! random inputs.
//!
//! The interpreter itself is held against results recorded on a GPU, in `outboard-ptx`.

mod common;

use common::{Args, Rig, engine};
use outboard_ptx::interp::samples::{INPUT_STRIDE, OUTPUT_STRIDE, Sample, module, samples};
use std::fmt::Write;

/// Inputs for each form.
const CASES: usize = 64;

fn word(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(bytes.try_into().expect("16 bytes"))
}

/// What is wrong with the results of one form, for people to read.
fn differences(
    sample: &Sample,
    program: &outboard_ptx::ir::Module,
    kernel: &str,
    results: &[u8],
) -> String {
    let mut text = String::new();
    for (found, index) in results.chunks(OUTPUT_STRIDE).map(word).zip(0..) {
        let inputs = sample.case(index);
        let expected = sample
            .interpret(program, kernel, &inputs)
            .unwrap_or_else(|stop| panic!("{}: {stop}", sample.form));
        if sample.defined(&inputs, expected) && !sample.agrees(expected, found) {
            writeln!(
                text,
                "{} {inputs:x?}: interpreted {expected:x}, compiled {found:x}",
                sample.form
            )
            .expect("a string");
        }
    }
    text
}

#[test]
fn compiled_code_computes_what_the_interpreter_does() {
    let samples = samples();
    let text = module(&samples);
    let program = outboard_ptx::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let engine = engine();
    let compiled = engine.load(&[&program]).unwrap_or_else(|error| panic!("{error}"));
    let rig = Rig { engine, program: compiled };
    let mut wrong = String::new();
    let mut forms = 0;
    for (index, sample) in samples.iter().enumerate() {
        let mut inputs = vec![0u8; CASES * INPUT_STRIDE];
        for (row, case) in inputs.chunks_mut(INPUT_STRIDE).zip(0..) {
            for (slot, bits) in row.chunks_mut(16).zip(sample.case(case)) {
                slot.copy_from_slice(&bits.to_le_bytes());
            }
        }
        let (inputs, results) = (rig.buffer(&inputs), rig.buffer(&[0u8; CASES * OUTPUT_STRIDE]));
        let kernel = format!("k{index}");
        rig.launch(
            &kernel,
            2,
            CASES as u32 / 2,
            Args::default().push(results.addr).push(inputs.addr),
        );
        let found = differences(sample, &program, &kernel, &results.read());
        if let Some(first) = found.lines().next() {
            forms += 1;
            writeln!(wrong, "{first} ({} of {CASES})", found.lines().count()).expect("a string");
        }
    }
    assert!(wrong.is_empty(), "{forms} of {} forms differ:\n{wrong}", samples.len());
}
