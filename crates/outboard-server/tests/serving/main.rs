//! A supervisor, its workers and their clients, each a process of its own: this program plays all the parts.

#![allow(clippy::print_stdout)]

mod copies;
mod cuts;
mod device;
mod parts;
mod peers;
mod proxy;
mod scenarios;
mod secure;
mod shared;
mod standing;
mod warm;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Duration;

use outboard_client::link::Choice;
use outboard_server::supervisor::warm::Bounds;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("worker") => parts::worker(args[1..] == ["dies"]),
        Some("supervisor") => {
            let warm = args.get(1).map_or(Bounds::fixed(0), |bounds| bounds.parse().expect("bounds"));
            let drain =
                args.get(2).and_then(|seconds| seconds.parse().ok()).map_or(Duration::ZERO, Duration::from_secs);
            parts::supervisor(warm, args[1..].contains(&"dies".to_owned()), drain)
        }
        Some("tls-supervisor") => parts::tls_supervisor(args[1].clone().into()),
        // Asked by a supervisor that is to become this program again.
        Some("check") => ExitCode::SUCCESS,
        Some("client") => parts::client(&args[1], Choice::Tcp),
        Some("leaving-client") => parts::leaving_client(&args[1]),
        Some("shm-client") => parts::client(&args[1], Choice::Shm),
        _ => run(&args),
    }
}

/// Runs the scenarios whose names contain one of the arguments, in the manner of the standard harness.
fn run(args: &[String]) -> ExitCode {
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = 0;
    for (name, scenario) in scenarios::ALL
        .iter()
        .chain(copies::ALL)
        .chain(warm::ALL)
        .chain(shared::ALL)
        .chain(secure::ALL)
        .chain(standing::ALL)
        .chain(cuts::ALL)
        .chain(peers::ALL)
    {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            let result = catch_unwind(*scenario);
            println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
            failed += u32::from(result.is_err());
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
