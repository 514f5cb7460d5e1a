//! Many clients, many launches, many allocations.

use outboard_e2e::{Program, Server};
use serde_json::Value;

#[test]
fn sixty_four_clients_at_once_all_get_their_right_result() {
    let server = Server::start();
    let program = Program::new("histogram");
    let wanted = program.directly();
    wanted.expect_success("histogram");
    let clients: Vec<_> = (0..64).map(|_| program.start_through(&server)).collect();
    for client in clients {
        let outcome = client.finish();
        outcome.expect_success("one of 64 clients");
        assert_eq!(outcome.stdout, wanted.stdout);
    }
}

/// What the client library counted in a run of a program that is told how much to do.
fn statistics(server: &Server, program: &str, amount: &str) -> Value {
    Program::new(program).arg(amount).statistics(server)
}

#[test]
fn a_burst_of_launches_is_posted() {
    let server = Server::start();
    // The first one sends the image. The difference of the others is what 10,000 launches cost.
    statistics(&server, "burst", "1");
    let few = statistics(&server, "burst", "1");
    let many = statistics(&server, "burst", "10001");
    let cost = |name: &str| {
        let count =
            |of: &Value| of[name].as_u64().unwrap_or_else(|| panic!("{name} is counted: {of}"));
        count(&many).saturating_sub(count(&few))
    };
    assert!(cost("posted") >= 10_000, "{few} {many}");
    assert!(cost("sends") <= 500, "{} sends for 10,000 launches: {many}", cost("sends"));
    assert!(cost("waited") <= 1, "{} waits for 10,000 launches: {many}", cost("waited"));
    for name in ["server", "device", "transport"] {
        assert!(many[name].is_string(), "{name} is told: {many}");
    }
    assert!(many["bytes_to_device"].is_u64() && many["bytes_from_device"].is_u64(), "{many}");
}

#[test]
fn waits_for_nothing_ask_nobody() {
    let server = Server::start();
    let few = statistics(&server, "idle_waits", "10");
    let many = statistics(&server, "idle_waits", "1010");
    let count = |of: &Value, name: &str| {
        of[name].as_u64().unwrap_or_else(|| panic!("{name} is counted: {of}"))
    };
    // A thousand rounds of seven waits and questions, an allocation, a free, and the record of an
    // event, which is posted.
    for (name, records) in [("waited", 0), ("posted", 1000)] {
        let more = count(&many, name).saturating_sub(count(&few, name));
        // Waits for what is held may be asked for a few times more or less.
        assert!(more <= records + 20, "{more} more {name} for 1,000 rounds: {few} {many}");
    }
}

/// Other work on the machine can only make a run look slower than it is, so the best of several
/// counts.
fn some_run_succeeds(what: &str, run: impl Fn() -> outboard_e2e::Outcome) {
    let mut last = String::new();
    for _ in 0..5 {
        let outcome = run();
        if outcome.status.success() {
            return;
        }
        last = outcome.stdout + &outcome.stderr;
    }
    panic!("{what}: {last}");
}

#[test]
fn ten_thousand_live_allocations_do_not_slow_a_launch() {
    let server = Server::start();
    let program = Program::new("allocations").arg("--limit");
    some_run_succeeds("directly", || program.directly());
    some_run_succeeds("through a server", || program.through(&server));
}
