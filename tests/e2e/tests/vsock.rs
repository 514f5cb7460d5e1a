//! Programs in virtual machines, and those who may not come in from there. Over vsock's loopback
//! where the kernel has that (`cargo xtask vm` does), and through a socket to which a hypervisor
//! forwards.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outboard_e2e::raw_client::hello;
use outboard_e2e::{
    Driver, Folder, Forwarder, Program, RawClient, Server, command, compare_suite, outboard, within,
};
use outboard_test_support::skip;
use outboard_transport::vsock;
use outboard_wire::handshake::{Purpose, RefusalCode};

/// On a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port of vsock that no other test uses.
fn port() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1 << 30 | std::process::id() << 8 | NEXT.fetch_add(1, Ordering::Relaxed)
}

fn serve(flags: &[&str]) -> Server {
    Server::start_with(&[&["--driver", Driver::chosen().name()], flags].concat(), &[])
}

/// A server that programs of this machine reach by vsock, and its address.
fn on_loopback(flags: &[&str]) -> (Server, String) {
    let place = format!("vsock:local:{}", port());
    (serve(&[&["--vsock", &place], flags].concat()), place)
}

/// A server to which a hypervisor forwards, and that.
fn forwarded(folder: &Folder, flags: &[&str]) -> (Server, Forwarder) {
    let place = folder.path("v.sock");
    let server = serve(&[&["--vsock", &place], flags].concat());
    let forwarder = Forwarder::to(&format!("{place}_9470"));
    (server, forwarder)
}

/// Runs the programs directly and at an address, and compares what they say.
fn compare(address: &str, transport: &str) {
    compare_suite(
        |program| program.env("OUTBOARD_TRANSPORT", transport),
        |program| program.through_list(address),
    );
}

#[test]
fn programs_run_over_vsock() {
    if let Err(error) = vsock::loopback() {
        skip!("this kernel has no vsock loopback: {error}");
    }
    let (server, address) = on_loopback(&[]);
    compare(&address, "vsock");
    let program = Program::new("endless").arg("16").env("OUTBOARD_TRANSPORT", "vsock");
    let mut program = program.start_through_list(&address);
    program.wait_for_line("running");
    server.travels_by("vsock");
    program.kill();
    assert!(within(PATIENCE, || server.workers().is_empty()), "the worker sees the end");
}

#[test]
fn a_client_of_the_same_machine_moves_to_shared_memory() {
    if let Err(error) = vsock::loopback() {
        skip!("this kernel has no vsock loopback: {error}");
    }
    let (server, address) = on_loopback(&[]);
    let mut program = Program::new("endless")
        .arg("16")
        .env("OUTBOARD_TRANSPORT", "auto")
        .start_through_list(&address);
    program.wait_for_line("running");
    server.travels_by("shm");
}

#[test]
fn programs_run_encrypted_over_vsock() {
    if let Err(error) = vsock::loopback() {
        skip!("this kernel has no vsock loopback: {error}");
    }
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, fingerprint) = token(&state);
    let (server, address) =
        on_loopback(&["--state", &state, "--require-authentication", "--tls", "on"]);
    let program =
        Program::new("burst").env("OUTBOARD_TRANSPORT", "vsock").env("OUTBOARD_TOKEN", &token);
    let known = program.clone().env("OUTBOARD_TLS_FINGERPRINT", &fingerprint);
    known.through_list(&address).expect_success("burst");
    server.expect_logged("\"owner\":\"alice\"");
    let refused = program.through_list(&address);
    assert!(refused.stderr.contains("would go in the clear"), "{}", refused.stderr);
}

#[test]
fn programs_run_where_a_hypervisor_forwards() {
    let folder = Folder::create();
    let (server, forwarder) = forwarded(&folder, &["--allow-anonymous"]);
    compare(&forwarder.address, "tcp");
    server.expect_logged("the virtual machine of process");
}

#[test]
fn a_session_goes_on_when_the_forwarded_connections_break() {
    let folder = Folder::create();
    let (server, forwarder) = forwarded(&folder, &["--allow-anonymous", "--closed-grace", "60"]);
    let mut program = Program::new("endless")
        .arg("16")
        .env("OUTBOARD_LOG", "1")
        .start_through_list(&forwarder.address);
    program.wait_for_line("running");
    for time in 1..=3 {
        assert!(forwarder.cut() > 0, "the session has connections");
        let is_back = || server.log().matches("the client is back").count() == time;
        assert!(within(PATIENCE, is_back), "{}", server.log());
        assert!(!program.has_ended());
    }
}

/// A token for a server with this state, and the fingerprint of its certificate.
fn token(state: &str) -> (String, String) {
    let made = outboard(&["token", "create", "--json", "--state", state, "--owner", "alice"]);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    (part("token"), part("fingerprint"))
}

#[test]
fn who_comes_from_a_virtual_machine_shows_who_it_is() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, fingerprint) = token(&state);
    let (_server, forwarder) = forwarded(&folder, &["--state", &state]);
    let devices = |env: &[(&str, &str)]| {
        let mut ask = command();
        ask.args(["devices", "--server", &forwarder.address]).envs(env.iter().copied());
        let output = ask.output().expect("outboard starts");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), said.into_owned())
    };
    let (welcome, said) = devices(&[]);
    assert!(!welcome && said.contains("wants to know who its clients are"), "{said}");
    let wrong = "obt_".to_owned() + &"0".repeat(64);
    let (welcome, said) = devices(&[("OUTBOARD_TOKEN", &wrong), ("OUTBOARD_TLS", "off")]);
    assert!(!welcome && said.contains("does not accept this token"), "{said}");
    let (welcome, said) = devices(&[("OUTBOARD_TOKEN", &token)]);
    assert!(!welcome && said.contains("would go in the clear"), "{said}");
    let (welcome, said) = devices(&[("OUTBOARD_TOKEN", &token), ("OUTBOARD_TLS", "off")]);
    assert!(welcome, "{said}");
    let secure = [("OUTBOARD_TOKEN", token.as_str()), ("OUTBOARD_TLS_FINGERPRINT", &fingerprint)];
    let (welcome, said) = devices(&secure);
    assert!(welcome, "{said}");
}

#[test]
fn who_comes_from_a_virtual_machine_hands_over_no_memory_and_links_no_servers() {
    let folder = Folder::create();
    let (_server, forwarder) = forwarded(&folder, &["--allow-anonymous"]);
    let client = RawClient::connect_to(&forwarder.address).expect("a session");
    let (session, key) = (client.welcome().session, client.welcome().key);
    for purpose in [Purpose::Memory { session, key }, Purpose::Peer { session, key }] {
        let refusal = hello(&forwarder.address, purpose).expect_err("not from there");
        assert_eq!(refusal.code, RefusalCode::NotAllowed, "{}", refusal.sentence);
    }
}

#[test]
fn a_server_that_cannot_know_its_guests_does_not_start() {
    let folder = Folder::create();
    let refused = command()
        .args(["serve", "--driver", "cpu", "--listen", "127.0.0.1:0", "--socket", "none"])
        .args(["--state", &folder.path("state"), "--vsock", &folder.path("v.sock")])
        .output()
        .expect("outboard starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("virtual machines can reach this server"),
        "{said}"
    );
    assert!(!folder.join("v.sock_9470").exists(), "it leaves no socket");
}
