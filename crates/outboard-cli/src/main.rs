//! The command `outboard`.

fn main() {}
