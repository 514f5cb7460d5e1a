//! Who waits uses no processor, and neither does who has nothing to do: on either side.

use std::time::{Duration, Instant};

use outboard_e2e::{Program, Server};

/// How long each part of the program takes.
const PART: Duration = Duration::from_millis(2500);
/// How long the processor time is looked at: well within a part, which may begin late on a busy
/// machine.
const LOOK: Duration = Duration::from_millis(1200);
/// A wait spins for some microseconds at its beginning, and a thread may look around once in a
/// while.
const MOST: f64 = 0.05;

/// Processor time of a process so far.
fn processor_time(process: u32) -> Duration {
    let stat =
        std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process is there");
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Behind the name: the 12th and 13th fields, in hundredths of a second.
    let ticks = |index: usize| fields[index].parse::<u64>().expect("a number");
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// The share of one processor that some processes use in the next moments, each.
fn load<const N: usize>(processes: [u32; N]) -> [f64; N] {
    let (before, start) = (processes.map(processor_time), Instant::now());
    std::thread::sleep(LOOK);
    let after = processes.map(processor_time);
    std::array::from_fn(|index| {
        (after[index] - before[index]).as_secs_f64() / start.elapsed().as_secs_f64()
    })
}

fn rests(environment: &[(&str, &str)]) {
    let server = Server::start();
    let program = Program::new("rest").arg(&PART.as_millis().to_string());
    let program =
        environment.iter().fold(program, |program, (name, value)| program.env(name, value));
    let mut running = program.start_through(&server);
    // The device of these tests may be processors: while a kernel runs, only the client must rest.
    running.wait_for_line("kernel");
    std::thread::sleep(Duration::from_millis(100));
    let [client] = load([running.id()]);
    assert!(client < MOST, "a client that waits for a kernel uses {client:.3} of a processor");
    for part in ["function", "nothing"] {
        running.wait_for_line(part);
        std::thread::sleep(Duration::from_millis(100));
        let worker = server.only_worker();
        let [client, worker, supervisor] = load([running.id(), worker, server.id()]);
        assert!(
            client < MOST && worker < MOST && supervisor < MOST,
            "while the client waits for {part}, shares of a processor: client {client:.3}, worker {worker:.3}, supervisor {supervisor:.3}"
        );
    }
    running.finish().expect_success("rest");
}

#[test]
fn who_waits_rests() {
    rests(&[]);
}

#[test]
fn who_waits_rests_over_tcp() {
    rests(&[("OUTBOARD_TRANSPORT", "tcp")]);
}
