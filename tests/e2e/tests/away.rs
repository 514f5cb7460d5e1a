//! Sessions whose client is away: what administrators and the server do with them meanwhile, and
//! what the client is told when it is back.

use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, Outcome, Program, RawClient, Running, Server, outboard, within,
};
use outboard_wire::device_id::DeviceId;
use outboard_wire::messages::ContextOpen;
use serde_json::Value;

use crate::proxy::Proxy;

/// On a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn json(args: &[&str]) -> Value {
    let output = outboard(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Whether the server's only session comes to be in a state; it may have yet to begin.
fn is_in_state(server: &Server, state: &str) -> bool {
    within(PATIENCE, || {
        let listing = json(&["sessions", "--json", "--over", "0.1", "--server", server.address()]);
        listing["sessions"]
            .as_array()
            .is_some_and(|all| matches!(&all[..], [one] if one["state"] == state))
    })
}

/// A program that launches and waits for ever, through a proxy.
fn endless(proxy: &Proxy, env: &[(&str, &str)]) -> Running {
    let program = Program::new("endless").arg("16").env("OUTBOARD_LOG", "1");
    let program = env.iter().fold(program, |program, (name, value)| program.env(name, value));
    let mut running = program.start_through_list(proxy.address());
    running.wait_for_line("running");
    running
}

/// From one moment to the next, all connections are closed, and none is made any more.
fn cut(proxy: &Proxy) {
    proxy.close(true);
    assert!(within(PATIENCE, || proxy.cut(None) == 0), "connections end");
}

/// The program has met an error that stays, and the library has said that.
fn expect_lost(outcome: &Outcome, why: &str) {
    assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(
        matches!(lines[..], ["running", "cudaErrorDevicesUnavailable", "then the same"]),
        "{lines:?}"
    );
    assert!(
        outcome.stderr.contains("so that all later calls fail") && outcome.stderr.contains(why),
        "{}",
        outcome.stderr
    );
}

fn serve(args: &[&str]) -> Server {
    Server::start_with(&[&["--driver", Driver::chosen().name()], args].concat(), &[])
}

#[test]
fn a_session_whose_client_is_away_is_shown_and_goes_on() {
    let server = serve(&["--closed-grace", "60"]);
    let proxy = Proxy::start(server.address());
    let mut program = endless(&proxy, &[]);
    for _ in 0..3 {
        assert!(is_in_state(&server, "serving"));
        cut(&proxy);
        assert!(is_in_state(&server, "disconnected"));
        let listing = outboard(&["sessions", "--server", server.address()]);
        assert!(String::from_utf8_lossy(&listing.stdout).contains("disconnected"));
        proxy.close(false);
    }
    assert!(is_in_state(&server, "serving"));
    assert!(!program.has_ended());
    program.kill();
    assert!(program.finish().stderr.matches("the session goes on").count() >= 3);
}

#[test]
fn a_session_whose_client_is_away_can_be_killed_and_the_client_is_told() {
    let server = serve(&["--closed-grace", "60"]);
    let proxy = Proxy::start(server.address());
    let program = endless(&proxy, &[]);
    cut(&proxy);
    assert!(is_in_state(&server, "disconnected"));
    let ended = json(&["kill", "--all", "--json", "--server", server.address()]);
    assert_eq!(ended["ended"].as_array().map(Vec::len), Some(1));
    assert!(within(PATIENCE, || server.workers().is_empty()), "its memory is free");
    proxy.close(false);
    let outcome = program.finish();
    expect_lost(&outcome, "ended by the server's administrator");
    assert!(outcome.stderr.contains("OB0602"), "{}", outcome.stderr);
}

#[test]
fn a_session_that_is_ended_before_its_first_command_says_why() {
    let server = Server::start();
    let mut client = RawClient::connect(&server);
    let ended = json(&["kill", "--all", "--json", "--server", server.address()]);
    assert_eq!(ended["ended"].as_array().map(Vec::len), Some(1));
    // The worker has been told by now, and did not know yet how the client wants to be served.
    std::thread::sleep(Duration::from_millis(200));
    client.post(&ContextOpen { device: DeviceId::new(0), flags: 0, primary: true });
    while client.read() {}
    let why = client.ended.expect("the reason");
    assert!(why.contains("ended by the server's administrator"), "{why}");
}

#[test]
fn after_its_time_a_session_is_freed_and_its_client_is_told() {
    let server = serve(&["--closed-grace", "1"]);
    let proxy = Proxy::start(server.address());
    let program = endless(&proxy, &[]);
    cut(&proxy);
    assert!(within(PATIENCE, || server.workers().is_empty()), "its memory is free");
    proxy.close(false);
    let outcome = program.finish();
    expect_lost(&outcome, "its client was away for longer than a session is kept");
    // Others come in as ever.
    Program::new("vector_add").through(&server).expect_success("a new client");
}

#[test]
fn a_client_that_nobody_answers_gives_up_in_time_and_so_does_the_server() {
    let server = serve(&["--grace", "2", "--keepalive", "3"]);
    let proxy = Proxy::start(server.address());
    let program = endless(&proxy, &[("OUTBOARD_KEEPALIVE", "3")]);
    proxy.silence(true);
    assert!(within(PATIENCE, || server.workers().is_empty()), "its memory is free");
    let outcome = program.finish();
    expect_lost(&outcome, "OB0601");
}

#[test]
fn a_session_whose_token_is_revoked_while_its_client_is_away_is_not_taken_up_again() {
    let folder = Folder::create();
    let state = &folder.path("state");
    let made = json(&["token", "create", "--json", "--owner", "alice", "--state", state]);
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    let (token, id, fingerprint) = (part("token"), part("id"), part("fingerprint"));
    let server = serve(&[
        "--tls",
        "on",
        "--require-authentication",
        "--state",
        state,
        "--closed-grace",
        "60",
    ]);
    let proxy = Proxy::start(server.address());
    let env = [("OUTBOARD_TLS_FINGERPRINT", &*fingerprint), ("OUTBOARD_TOKEN", &*token)];
    let program = endless(&proxy, &env);
    // With a token that is good, it goes on.
    cut(&proxy);
    assert!(is_in_state(&server, "disconnected"));
    proxy.close(false);
    assert!(is_in_state(&server, "serving"));
    cut(&proxy);
    assert!(is_in_state(&server, "disconnected"));
    assert!(outboard(&["token", "revoke", &id, "--state", state]).status.success());
    proxy.close(false);
    let outcome = program.finish();
    assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stderr.contains("so that all later calls fail"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains(&token[4..]), "no token is printed");
    assert!(within(PATIENCE, || server.workers().is_empty()), "its memory is free");
}

/// What kernels write to page-locked memory comes with the answers to waits, over connections that
/// end again and again.
#[test]
fn memory_that_both_sides_use_is_right_over_connections_that_end() {
    let server = serve(&["--closed-grace", "60"]);
    let proxy = Proxy::start(server.address());
    let mut cuts = 0;
    for kind in ["reply", "edges", "turns"] {
        let mut program =
            Program::new("answers").arg(kind).arg("2500").start_through_list(proxy.address());
        assert!(is_in_state(&server, "serving"));
        while !program.has_ended() {
            cuts += proxy.cut(None);
            std::thread::sleep(Duration::from_millis(100));
        }
        program.finish().expect_success(kind);
        assert!(within(PATIENCE, || server.workers().is_empty()), "it said goodbye");
    }
    assert!(cuts > 10, "{cuts} connections were cut");
}
