//! What the tests of all packages share.

mod end;
pub mod etcd;
pub mod monitoring;
mod port;

use std::fmt;
use std::io::Write as _;

pub use end::End;
pub use port::ReservedPort;

/// Returns from the test that calls it, as one that cannot run here, and says why. `cargo xtask
/// test` counts it as skipped; for `cargo test` alone, a test that returns has passed.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::say_skipped(format_args!($($why)*));
        return;
    }};
}

/// Writes the line by which `cargo xtask test` knows the test of this thread as skipped.
#[doc(hidden)]
pub fn say_skipped(why: fmt::Arguments<'_>) {
    let thread = std::thread::current();
    say(thread.name().unwrap_or("a test"), why);
}

/// Says that a test cannot run here, and why, where its thread does not have its name.
pub fn skipped(test: &str, why: &str) {
    say(test, format_args!("{why}"));
}

/// Not with `eprintln!`: what a test prints is shown only if it fails. On a line of its own: the
/// harness may be in the middle of one.
fn say(test: &str, why: fmt::Arguments<'_>) {
    // Whoever closed standard error does not want to know.
    let _ = std::io::stderr().write_all(format!("\nskipped {test}: {why}\n").as_bytes());
}

/// Runs a command, whose words are between single spaces.
///
/// # Panics
/// If it fails.
pub fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let status = std::process::Command::new(program).args(words).status();
    let status = status.unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(status.success(), "{command}: {status}");
}
