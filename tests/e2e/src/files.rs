//! Files of tests, and what a profile says of them.

use serde_json::Value;

/// Bytes of files that a program's servers have read, and the program itself; and written.
pub fn moved(profile: &Value) -> (u64, u64, u64, u64) {
    let count = |name: &str| profile["files"][name].as_u64().unwrap_or(0);
    (
        count("read_by_servers"),
        count("read_here"),
        count("written_by_servers"),
        count("written_here"),
    )
}

/// Writes a file of bytes that depend on `seed`; their sum.
///
/// # Panics
/// If it cannot be written.
pub fn fill(path: &str, bytes: usize, seed: usize) -> u64 {
    let all: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251 + seed) as u8).collect();
    std::fs::write(path, &all).expect("it can be written");
    all.iter().map(|byte| u64::from(*byte)).sum()
}
