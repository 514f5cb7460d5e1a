//! Renews `tests/data/recorded.txt`, the results of a GPU that the interpreter is held against.
//! Three steps:
//!
//! 1. here: `cargo run -p outboard-ptx --features interp --example samples -- write DIR`
//! 2. on a machine with a GPU: compile `tests/gpu/samples.cu` with nvcc and run it in DIR
//! 3. here: `cargo run -p outboard-ptx --features interp --example samples -- compare DIR`, which
//!    tells where the interpreter differs, and writes `DIR/recorded.txt`

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use outboard_ptx::interp::samples::{INPUT_STRIDE, OUTPUT_STRIDE, module, samples};

/// Inputs for each form that are computed.
const CASES: usize = 512;
/// Of these, how many are recorded.
const RECORDED: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", folder] => write(Path::new(folder)),
        ["compare", folder] => compare(Path::new(folder)),
        _ => Err("usage: samples write|compare DIR".into()),
    }
}

fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    let samples = samples();
    let mut inputs = vec![0u8; samples.len() * CASES * INPUT_STRIDE];
    for (sample, rows) in samples.iter().zip(inputs.chunks_mut(CASES * INPUT_STRIDE)) {
        for (row, index) in rows.chunks_mut(INPUT_STRIDE).zip(0..) {
            for (slot, bits) in row.chunks_mut(16).zip(sample.case(index)) {
                slot.copy_from_slice(&bits.to_le_bytes());
            }
        }
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("samples.ptx"), module(&samples))?;
    fs::write(folder.join("inputs.bin"), inputs)?;
    eprintln!("{} kernels, {CASES} inputs each", samples.len());
    Ok(())
}

fn compare(folder: &Path) -> Result<(), Box<dyn Error>> {
    let samples = samples();
    let program = outboard_ptx::parse(&module(&samples))?;
    let outputs = fs::read(folder.join("outputs.bin"))?;
    let mut recorded = String::new();
    let (mut forms, mut results) = (0, 0);
    for (number, (sample, rows)) in
        samples.iter().zip(outputs.chunks(CASES * OUTPUT_STRIDE)).enumerate()
    {
        recorded.push_str(&sample.form);
        let mut wrong = 0;
        for (row, index) in rows.chunks(OUTPUT_STRIDE).zip(0..) {
            let found = u128::from_le_bytes(row.try_into()?);
            if index < RECORDED as u64 {
                write!(recorded, "{}{found:x}", if index == 0 { '\t' } else { ' ' })?;
            }
            let inputs = sample.case(index);
            let expected = sample.interpret(&program, &format!("k{number}"), &inputs)?;
            if !sample.defined(&inputs, expected) {
                continue;
            }
            results += 1;
            if !sample.agrees(expected, found) {
                wrong += 1;
                if wrong <= 3 {
                    eprintln!(
                        "{} {inputs:x?}: interpreted {expected:x}, found {found:x}",
                        sample.form
                    );
                }
            }
        }
        recorded.push('\n');
        forms += usize::from(wrong > 0);
    }
    fs::write(folder.join("recorded.txt"), recorded)?;
    eprintln!("{forms} of {} forms differ, in {results} results", samples.len());
    Ok(())
}
