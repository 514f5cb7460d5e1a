//! Bytes that are changed on the way from a server to a program: the program ends, well or with an
//! error, and neither hangs nor crashes.

use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use outboard_e2e::{Damage, Program, Server, within};

/// Programs that use much of the protocol in little time.
const PROGRAMS: [&str; 6] = [
    "copies_2d_3d",
    "host_functions",
    "graph_explicit",
    "streams_events",
    "memory_pools",
    "mapped_memory",
];
/// What `OUTBOARD_KEEPALIVE` is set to, and a run takes at most.
const KEEPALIVE: &str = "3";
const LONGEST: Duration = Duration::from_secs(100);

/// The numbers to try: FIRST..END from `OUTBOARD_TEST_SEEDS`, or some that end soon: a server whose
/// welcome never ends is waited for 30 seconds.
fn seeds() -> Range<u64> {
    let text = std::env::var("OUTBOARD_TEST_SEEDS").unwrap_or_else(|_| "320..344".to_owned());
    let (first, end) = text.split_once("..").expect("FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn changed_bytes_end_a_program_or_do_it_no_harm() {
    let server = Server::start_with(&["--max-sessions", "64"], &[]);
    let (mut wrong, mut changed) = (Vec::new(), 0);
    for seed in seeds() {
        let damage = Damage::before(server.address(), seed);
        let name = PROGRAMS[seed as usize % PROGRAMS.len()];
        let reconnect = if seed % 4 == 0 { "5" } else { "0" };
        let program = Program::new(name)
            .env("OUTBOARD_KEEPALIVE", KEEPALIVE)
            .env("OUTBOARD_RECONNECT", reconnect);
        let began = Instant::now();
        let mut running = program.start_through_list(damage.address());
        if !within(LONGEST, || running.has_ended()) {
            wrong.push(format!("{seed}: {name} hangs; {}", damage.plan()));
            running.kill();
            continue;
        }
        let outcome = running.finish();
        eprintln!(
            "{seed}: {name} {:?} changed {} {} {}",
            began.elapsed(),
            damage.happened(),
            outcome.status,
            outcome.stderr.trim()
        );
        changed += u32::from(damage.happened());
        if let Some(signal) = outcome.status.signal() {
            wrong.push(format!(
                "{seed}: {name} died of signal {signal}; {}\n{}",
                damage.plan(),
                outcome.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(changed > 0, "no byte was changed");
    Program::new("vector_add").through(&server).expect_success("after all that");
}
