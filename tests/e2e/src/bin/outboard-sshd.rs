//! `outboard-sshd`: the tests' machine that ssh leads to, for other programs.
//!
//! It prints what a command's environment must have to reach `ssh://gpu1`, a line `NAME=VALUE`
//! each, and then an empty line; the machine is there until standard input ends.

// Whoever starts it reads what it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io;
use std::process::ExitCode;

use outboard_e2e::sshd::{Machine, Sshd};

fn main() -> ExitCode {
    let sshd = match Sshd::start(Machine::default()) {
        Ok(sshd) => sshd.with_release(),
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    for (name, value) in sshd.surroundings() {
        println!("{name}={value}");
    }
    println!();
    // What comes there does not matter.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    ExitCode::SUCCESS
}
