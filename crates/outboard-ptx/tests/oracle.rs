//! The interpreter against results recorded on a GPU.
//!
//! `data/recorded.txt` holds, for each instruction form, what an NVIDIA H200 (driver 580.159, CUDA
//! 13.0) computed for the first inputs of [`Sample::case`]: the form, a tab, and the results in
//! hexadecimal.

use std::collections::HashMap;

use outboard_ptx::interp::samples::{Sample, module, samples};
use outboard_ptx::parse;

#[test]
fn the_interpreter_computes_what_a_gpu_does() {
    let samples = samples();
    let program = parse(&module(&samples)).unwrap_or_else(|error| panic!("{error}"));
    let recorded: HashMap<&str, &str> = include_str!("data/recorded.txt")
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect();
    let (mut forms, mut results) = (0, 0);
    for (index, sample) in samples.iter().enumerate() {
        let recorded = recorded.get(sample.form.as_str());
        let Some(recorded) = recorded else { panic!("nothing recorded for '{}'", sample.form) };
        forms += 1;
        results += agreeing(sample, &program, &format!("k{index}"), recorded);
    }
    // Most inputs give a defined result.
    assert!(forms > 1000 && results > 6 * forms, "{forms} forms, {results} results");
}

/// Number of recorded results with which the interpreter agrees; all that are defined, or the test
/// fails.
fn agreeing(
    sample: &Sample,
    program: &outboard_ptx::ir::Module,
    kernel: &str,
    recorded: &str,
) -> usize {
    let mut count = 0;
    for (word, index) in recorded.split(' ').zip(0..) {
        let found = u128::from_str_radix(word, 16).unwrap();
        let inputs = sample.case(index);
        let expected = sample
            .interpret(program, kernel, &inputs)
            .unwrap_or_else(|stop| panic!("{}: {stop}", sample.form));
        if sample.defined(&inputs, expected) {
            let form = &sample.form;
            assert!(
                sample.agrees(expected, found),
                "{form} {inputs:x?}: interpreted {expected:x}, recorded {found:x}"
            );
            count += 1;
        }
    }
    count
}
