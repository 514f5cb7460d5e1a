//! Programs whose connections the kernel encrypts, where it can: in the machine of `cargo xtask
//! ktls`, if not here.

use std::process::Output;
use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, Outcome, Program, Server, command, compare_suite, outboard, within,
};
use outboard_test_support::skip;
use outboard_transport::tls::kernel::{Without, check};

use crate::proxy::Proxy;

/// On a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(120);

macro_rules! needs_tls {
    () => {
        if let Err(why) = check() {
            skip!("{why}");
        }
    };
}

/// A server to which connections are encrypted, and by what clients know it.
struct Site {
    server: Server,
    fingerprint: String,
    token: String,
    _folder: Folder,
}

impl Site {
    /// With `kernel`, which is `on` or `off`.
    fn serve(kernel: &str) -> Site {
        let folder = Folder::create();
        let state = folder.path("state");
        let made = outboard(&["token", "create", "--json", "--state", &state, "--owner", "alice"]);
        let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let part = |name: &str| made[name].as_str().expect("a text").to_owned();
        let flags = ["--driver", Driver::chosen().name(), "--state", &state, "--tls", "on"];
        let more = ["--require-authentication", "--tls-kernel", kernel, "--closed-grace", "60"];
        let server = Server::start_with(&[&flags[..], &more].concat(), &[]);
        Site { server, fingerprint: part("fingerprint"), token: part("token"), _folder: folder }
    }

    /// The program, for which the client's kernel encrypts, or does not.
    fn let_in(&self, program: Program, kernel: &str) -> Program {
        program
            .env("OUTBOARD_TLS_FINGERPRINT", &self.fingerprint)
            .env("OUTBOARD_TOKEN", &self.token)
            .env("OUTBOARD_TRANSPORT", "tcp")
            .env("OUTBOARD_TLS_KERNEL", kernel)
            .env("OUTBOARD_LOG", "1")
    }
}

/// How many keys to send with the kernel has been given, in all of this machine.
fn keys_of_the_kernel() -> u64 {
    let counts = std::fs::read_to_string("/proc/net/tls_stat").expect("the kernel counts");
    let sent = counts.lines().find_map(|line| line.strip_prefix("TlsTxSw")).expect("what it sends");
    sent.trim().parse().expect("a number")
}

fn expect_equal(name: &str, direct: &Outcome, remote: &Outcome) {
    direct.expect_success(name);
    remote.expect_success(name);
    assert_eq!(direct.stdout, remote.stdout, "{name}");
}

#[test]
fn programs_run_while_the_kernel_encrypts_on_either_side_or_both() {
    needs_tls!();
    for (of_server, of_client) in [("on", "on"), ("on", "off"), ("off", "on"), ("off", "off")] {
        let site = Site::serve(of_server);
        let let_in = |program| site.let_in(program, of_client);
        let remotely = |program: &Program| {
            let before = keys_of_the_kernel();
            let outcome = program.through(&site.server);
            let keys = keys_of_the_kernel() - before;
            assert_eq!(keys > 0, [of_server, of_client].contains(&"on"), "{keys} keys");
            outcome
        };
        if (of_server, of_client) == ("on", "on") {
            compare_suite(let_in, remotely);
        } else {
            let burst = let_in(Program::new("burst"));
            expect_equal("burst", &burst.directly(), &remotely(&burst));
        }
        let log = site.server.log();
        assert!(!log.contains("not by the kernel"), "{log}");
    }
}

/// All connections at once, whatever they carry.
#[test]
fn a_training_run_survives_cuts_of_all_connections_that_the_kernel_encrypts() {
    needs_tls!();
    let program = || Program::new("train").arg("120").arg("10");
    let undisturbed = program().directly();
    let site = Site::serve("on");
    let proxy = Proxy::start(site.server.address());
    let before = keys_of_the_kernel();
    let mut training = site.let_in(program(), "on").start_through_list(proxy.address());
    for step in [20, 50, 80] {
        let step = format!("step {step}:");
        let line = undisturbed.stdout.lines().find(|line| line.starts_with(&step));
        training.wait_for_line(line.expect("it said so"));
        assert!(proxy.cut(None) > 0, "there are connections");
    }
    expect_equal("train", &undisturbed, &training.finish());
    let keys = keys_of_the_kernel() - before;
    assert!(keys >= 8, "{keys} keys: both sides of four connections or more");
    site.server.expect_logged("the client is back");
    assert!(within(PATIENCE, || site.server.workers().is_empty()), "it said goodbye");
}

fn doctor(args: &[&str], env: &[(&str, &str)]) -> serde_json::Value {
    let mut command = command();
    command.args(["doctor", "--json"]).args(args).envs(env.iter().copied());
    let Output { stdout, .. } = command.output().expect("outboard starts");
    let said: serde_json::Value = serde_json::from_slice(&stdout).expect("JSON");
    let findings = said["findings"].as_array().expect("findings");
    findings.iter().find(|one| one["check"] == "tls-kernel").expect("it looks").clone()
}

#[test]
fn where_the_kernel_cannot_encrypt_a_program_runs_all_the_same_and_it_is_said_why() {
    let missing = check().err();
    let site = Site::serve("on");
    let program = site.let_in(Program::new("burst"), "on");
    let remote = program.through(&site.server);
    expect_equal("burst", &program.directly(), &remote);
    let why = missing.as_ref().map(Without::to_string).unwrap_or_default();
    for (said, whose) in [(site.server.log(), "the server"), (remote.stderr, "the client")] {
        assert_eq!(said.contains("kernel"), missing.is_some(), "{whose}: {said}");
        assert!(said.contains(&why), "{whose}: {said}");
    }
    let level = if missing.is_some() { "warn" } else { "ok" };
    let env = [
        ("OUTBOARD_TLS_KERNEL", "on"),
        ("OUTBOARD_TLS_FINGERPRINT", &site.fingerprint),
        ("OUTBOARD_TOKEN", &site.token),
    ];
    for found in [
        doctor(&["--server", site.server.address()], &env),
        doctor(&["serve", "--driver", "cpu", "--tls-kernel", "on"], &[]),
    ] {
        assert_eq!(found["level"], level, "{found}");
        assert!(found["found"].as_str().is_some_and(|text| text.contains(&why)), "{found}");
    }
    assert_eq!(doctor(&["serve", "--driver", "cpu"], &[])["level"], "ok");
}
