//! Servers of a pool: who comes in by which lease, what it gets, and for how long.

use std::net::TcpStream;
use std::process::Output;
use std::time::Duration;

use outboard_e2e::pool::{MIB, Pool, from_now, half, new_key, uuid, with};
use outboard_e2e::raw_client::hello_saying;
use outboard_e2e::{Driver, Program, Server, command, within};
use outboard_pool::lease::{Lease, SigningKey};
use outboard_pool::words::{MayShare, Share, Use};
use outboard_test_support::skip;
use outboard_wire::handshake::lease::{LEASE, ShownLease};
use outboard_wire::handshake::{Extensions, Purpose, Refusal};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::proxy::Proxy;

/// How long a session may go on after its lease, on a machine that is busy.
const SOON: Duration = Duration::from_secs(30);

fn said(output: &Output) -> String {
    let said = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&said)
        .split_whitespace()
        .filter(|word| *word != "│")
        .collect::<Vec<_>>()
        .join(" ")
}

/// What `outboard devices` says to a server.
fn devices(server: &Server, env: &[(&'static str, String)]) -> Output {
    let env = env.iter().map(|(name, value)| (*name, value.as_str()));
    command()
        .args(["devices", "--server", server.address()])
        .env("OUTBOARD_TLS", "off")
        .envs(env)
        .output()
        .expect("outboard starts")
}

#[test]
fn a_lease_has_its_devices_and_no_others() {
    if Driver::chosen() != Driver::Cpu {
        skip!("this takes three devices, which the software device can be");
    }
    let pool = Pool::create();
    let admin = pool.folder.path("admin.sock");
    let server = pool.serve("gpu1", &["--admin", &admin]);
    let lease = pool.lease(7, &[(2, 256 * MIB, half()), (0, 512 * MIB, half())]);
    let uuids = |list: &str| {
        let seen = pool.program("devices", &lease).through_list(list);
        seen.expect_success("devices");
        seen.stdout.lines().filter_map(uuid).collect::<Vec<_>>()
    };
    let [first, _, third] = &pool.devices[..] else { panic!("three devices") };
    assert_eq!(uuids(server.address()), [third.clone(), first.clone()]);
    let of = |index: u32| format!("{}/{index}", server.address());
    assert_eq!(uuids(&of(1)), std::slice::from_ref(first), "they are numbered in the lease");
    let visible = pool.program("devices", &lease).env("CUDA_VISIBLE_DEVICES", first);
    assert!(visible.through(&server).stdout.contains(first));
    let beyond = pool.program("devices", &lease).through_list(&of(2));
    assert!(beyond.stderr.contains("the lease has no device 2"), "{}", beyond.stderr);
    let listed = said(&devices(&server, &pool.env(&lease)));
    let place = |text: &str| listed.find(text).unwrap_or_else(|| panic!("{text}: {listed}"));
    assert!(place("0.2 GiB") < place(third) && place(third) < place("0.5 GiB"), "{listed}");
    assert!(place("0.5 GiB") < place(first) && listed.matches("GPU-").count() == 2, "{listed}");

    let mut running = pool.hold(&lease, &server, MIB);
    running.wait_for_line("held");
    let sessions = command().args(["sessions", "--admin", &admin]).output().expect("outboard runs");
    let sessions = said(&sessions);
    assert!(sessions.contains("alice lease 7"), "{sessions}");
    running.kill();
}

#[test]
fn the_doctor_shows_the_lease_too() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let doctor = |env: &[(&'static str, String)]| {
        let env = env.iter().map(|(name, value)| (*name, value.as_str()));
        let mut doctor = command();
        doctor.args(["doctor", "--server", server.address()]).envs(env);
        doctor.env("OUTBOARD_TLS", "off").output().expect("outboard starts")
    };
    let well = doctor(&pool.env(&pool.shared(7, 256 * MIB)));
    assert!(well.status.success(), "{}", said(&well));
    let without = said(&doctor(&[]));
    assert!(without.contains("OB0408"), "{without}");
}

#[test]
fn memory_ends_where_the_lease_says() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let lease = pool.shared(7, 256 * MIB);
    let limited = pool.program("memory_limit", &lease).arg(&(256 * MIB).to_string());
    limited.through(&server).expect_success("memory_limit");
    // What it had counts until its sessions have ended.
    let count = |what: &str| server.log().matches(what).count();
    let have_ended =
        || count("session starts") > 0 && count("session ends") == count("session starts");
    assert!(within(SOON, have_ended), "{}", server.log());
    // NVML answers over a connection of its own, which shows the lease, too.
    pool.program("nvml", &lease).through(&server).expect_success("nvml");
}

/// Each device has a limit of its own.
#[test]
fn devices_of_a_lease_have_their_own_memory_and_multiprocessors() {
    if Driver::chosen() != Driver::Cpu {
        skip!("this takes three devices, which the software device can be");
    }
    let pool = Pool::create();
    let server = pool.serve_on("gpu1", &[], &[("OUTBOARD_CPU_THREADS", "4")]);
    let share = |percent: u8| Use::Shared(Share::try_from(percent).expect("a share"));
    let lease = pool.lease(7, &[(0, 256 * MIB, share(60)), (1, 384 * MIB, share(100))]);
    for (index, memory, multiprocessors) in [(0, 256 * MIB, 2), (1, 384 * MIB, 4)] {
        let list = format!("{}/{index}", server.address());
        let limited = pool.program("memory_limit", &lease).arg(&memory.to_string());
        limited.through_list(&list).expect_success("memory_limit");
        let portion = pool.program("portion", &lease).arg(&multiprocessors.to_string());
        portion.through_list(&list).expect_success("portion");
    }
}

/// A session that loses its connection goes on with its lease, and ends with it.
#[test]
fn a_session_that_was_cut_off_keeps_its_lease() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &["--closed-grace", "60"]);
    let lease =
        Lease { not_before: from_now(-60), expires: from_now(-18), ..pool.shared(7, 256 * MIB) };
    let proxy = Proxy::start(server.address());
    let mut running = pool.program("endless", &lease).arg("4").start_through_list(proxy.address());
    running.wait_for_line("running");
    assert!(proxy.cut(None) > 0, "there are connections");
    server.expect_logged("the client is back");
    assert!(!running.has_ended());
    assert!(within(SOON, || running.has_ended()), "{}", server.log());
    let ended = running.finish();
    assert!(ended.stderr.contains("lease 7 has expired"), "{}", ended.stderr);
}

#[test]
fn processes_of_a_lease_have_its_memory_together() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let lease = pool.shared(7, 256 * MIB);
    let mut first = pool.hold(&lease, &server, 192 * MIB);
    first.wait_for_line("held");
    let mut second = pool.hold(&lease, &server, 64 * MIB);
    second.wait_for_line("held");
    let third = pool.hold(&lease, &server, 1).finish();
    assert!(!third.status.success() && third.stdout.contains("OUT_OF_MEMORY"), "{third:?}");
    // Another lease on the device has its own.
    let mut other = pool.hold(&pool.shared(8, 256 * MIB), &server, 256 * MIB);
    other.wait_for_line("held");
    // Also of a process that ends without a word.
    first.kill();
    let bytes = (160 * MIB).to_string();
    let again = pool.program("memory_limit", &lease).arg("look").arg(&bytes);
    assert!(within(SOON, || again.through(&server).status.success()), "{}", server.log());
    second.kill();
    other.kill();
}

#[test]
fn a_lease_for_one_process_is_for_one() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let lease = Lease { may_share: MayShare::Nobody, ..pool.shared(7, 256 * MIB) };
    let mut first = pool.hold(&lease, &server, MIB);
    first.wait_for_line("held");
    let second =
        pool.program("devices", &lease).env("OUTBOARD_QUEUE_TIMEOUT", "0").through(&server);
    assert!(second.stderr.contains("as many sessions as it may have (1)"), "{}", second.stderr);
    first.kill();
    let next = || pool.program("devices", &lease).env("OUTBOARD_QUEUE_TIMEOUT", "0");
    assert!(within(SOON, || next().through(&server).status.success()), "{}", server.log());
}

/// A token of the server with that folder, and what else is said of it.
fn token_of_an_admin(state: &str) -> serde_json::Value {
    let made = command()
        .args(["token", "create", "--json", "--owner", "admin", "--state", state])
        .output()
        .expect("outboard starts");
    serde_json::from_slice(&made.stdout).expect("JSON")
}

#[test]
fn an_exclusive_device_is_for_the_lease_alone() {
    let pool = Pool::create();
    let state = pool.folder.path("state");
    let made = token_of_an_admin(&state);
    let token = made["token"].as_str().expect("a token").to_owned();
    let server = pool.serve("gpu1", &["--state", &state, "--queue", "4"]);
    let admin = [("OUTBOARD_TOKEN", token), ("OUTBOARD_TLS", "off".to_owned())];
    let admins = || {
        let program = with(Program::new("devices"), &admin).env("OUTBOARD_LOG", "1");
        program.env("OUTBOARD_QUEUE_TIMEOUT", "0").through(&server)
    };
    admins().expect_success("a token of the server's own is good without a lease");
    let lease = pool.lease(7, &[(0, 256 * MIB, Use::Exclusive)]);
    let mut running = pool.hold(&lease, &server, MIB);
    running.wait_for_line("held");
    let other = admins();
    assert!(other.stderr.contains("for one owner at a time"), "{}", other.stderr);
    let others = pool.lease(8, &[(0, 256 * MIB, half())]);
    let others = pool.program("devices", &others).env("OUTBOARD_QUEUE_TIMEOUT", "0");
    let others = others.through(&server);
    assert!(others.stderr.contains("for one owner at a time"), "{}", others.stderr);
    pool.program("devices", &lease).through(&server).expect_success("a second process of it");
    running.kill();
}

#[test]
fn what_is_no_good_lease_here_and_now_is_refused() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let good = pool.shared(7, 256 * MIB);
    let refused = |env: &[(&'static str, String)], code: &str, why: &str| {
        let text = said(&devices(&server, env));
        assert!(text.contains(code) && text.contains(why), "{code}, {why}: {text}");
    };
    assert!(devices(&server, &pool.env(&good)).status.success());
    refused(&[], "OB0408", "OUTBOARD_LEASE");
    let expired = Lease { not_before: from_now(-90), expires: from_now(-35), ..good.clone() };
    refused(&pool.env(&expired), "OB0603", "has expired");
    let early = Lease { not_before: from_now(45), ..good.clone() };
    refused(&pool.env(&early), "OB0409", "not yet valid");
    let elsewhere = Lease { devices: vec![pool.granted("gpu2", 0, MIB, half())], ..good.clone() };
    refused(&pool.env(&elsewhere), "OB0409", "for another server");
    let foreign = SigningKey::generate().expect("a key");
    refused(&pool.env_of(&good, &foreign, &pool.key_file), "OB0409", "does not know");
    let (_, thief) = new_key(&pool.folder, "thief.key");
    refused(&pool.env_of(&good, &pool.broker, &thief), "OB0409", "bound to another key");
    // Its own mistakes, the client finds itself.
    let half = &pool.env(&good)[..1];
    refused(half, "OB0406", "belong together");
    let mut in_the_clear = pool.env(&good);
    in_the_clear[2].1 = "auto".to_owned();
    refused(&in_the_clear, "OB0404", "in the clear");
    let mut nothing = pool.env(&good);
    nothing[0].1 = pool.folder.write("nothing", "obt_1");
    refused(&nothing, "OB0406", "one lease");
}

#[test]
fn a_hello_that_was_overheard_is_of_no_use() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let lease = pool.shared(7, 256 * MIB);
    let say = |shown: &ShownLease| -> Result<(), Refusal> {
        let mut more = Extensions::default();
        more.set(LEASE, shown);
        let stream = TcpStream::connect(server.address()).expect("the server listens");
        hello_saying(stream, Purpose::Probe, more).map(drop)
    };
    let shown = pool.shown(&lease, 1);
    say(&shown).expect("it is the owner's");
    let again = say(&shown).expect_err("the same bytes");
    assert!(again.sentence.contains("shown before"), "{again}");
    // With anything changed, or for another server.
    for change in [
        ShownLease { nonce: 2, ..shown.clone() },
        ShownLease { time: shown.time + 1, ..shown.clone() },
        ShownLease { token: pool.shown(&pool.shared(8, MIB), 3).token, ..shown.clone() },
    ] {
        let refused = say(&change).expect_err("not what was signed");
        assert!(refused.sentence.contains("was not made for this server"), "{refused}");
    }
    let mut other = ShownLease { server: "gpu2".into(), nonce: 4, ..shown.clone() };
    other.signature = pool.key.sign(&other.statement(None));
    assert!(say(&other).expect_err("another server's").sentence.contains("gpu2"));
    let mut late = ShownLease { time: shown.time - 40_000, nonce: 5, ..shown.clone() };
    late.signature = pool.key.sign(&late.statement(None));
    let late = say(&late).expect_err("an old one");
    assert!(late.sentence.contains("30 seconds apart"), "{late}");
    say(&pool.shown(&lease, 6)).expect("the owner goes on");
}

#[test]
fn over_tls_a_lease_is_shown_to_the_server_that_is_meant() {
    let pool = Pool::create();
    let state = pool.folder.path("state");
    let made = token_of_an_admin(&state);
    let server = pool.serve("gpu1", &["--state", &state, "--tls", "on"]);
    let lease = pool.shared(7, 256 * MIB);
    let known = |program: &str, fingerprint: &str| {
        let program = with(Program::new(program), &pool.env(&lease));
        program
            .env("OUTBOARD_TLS", "on")
            .env("OUTBOARD_LOG", "1")
            .env("OUTBOARD_TLS_FINGERPRINT", fingerprint)
    };
    let fingerprint = made["fingerprint"].as_str().expect("a fingerprint");
    known("vector_add", fingerprint).through(&server).expect_success("vector_add");
}

/// By an authority, the client learns the server's certificate from the connection.
#[test]
fn a_lease_is_shown_to_a_server_that_an_authority_vouches_for() {
    let pool = Pool::create();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().expect("a key");
    let server = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let server = server.signed_by(&own, &issuer).expect("a certificate");
    let authority = pool.folder.write("ca.pem", &authority.pem());
    let certificate = pool.folder.write("server.pem", &server.pem());
    let own = pool.folder.write("server.key", &own.serialize_pem());
    let files = ["--tls-cert", &certificate, "--tls-key", &own];
    let server = pool.serve("gpu1", &[&files[..], &["--tls", "on"]].concat());
    let lease = pool.shared(7, 256 * MIB);
    let known = pool.program("vector_add", &lease).env("OUTBOARD_TLS", "on");
    let known = known.env("OUTBOARD_TLS_CA", &authority);
    let list = server.address().replace("127.0.0.1", "localhost");
    known.through_list(&list).expect_success("vector_add");
}

#[test]
fn one_lease_is_for_several_servers() {
    let pool = Pool::create();
    let servers = ["gpu1", "gpu2"].map(|name| pool.serve(name, &[]));
    let devices = ["gpu1", "gpu2"].map(|name| pool.granted(name, 0, 256 * MIB, half()));
    let lease = Lease { devices: devices.into(), ..pool.shared(7, MIB) };
    let list = servers.each_ref().map(Server::address).join(",");
    let lost = pool.program("devices", &lease).through_list(&list);
    assert!(lost.stderr.contains("pool-name"), "{}", lost.stderr);
    let env = pool.env(&lease);
    let own = |name: &str| {
        serde_json::json!({
            "pool-name": name, "lease": env[0].1, "lease-key": env[1].1, "tls": "off",
        })
    };
    let own = serde_json::json!({
        servers[0].address(): own("gpu1"),
        servers[1].address(): own("gpu2"),
    });
    let program = |own: &serde_json::Value| {
        let program = Program::new("devices").env("OUTBOARD_LOG", "1");
        program.env("OUTBOARD_SERVERS", &own.to_string()).through_list(&list)
    };
    let seen = program(&own);
    seen.expect_success("devices");
    assert!(seen.stdout.contains("2 devices"), "{}", seen.stdout);
    // Each takes a proof for itself only.
    let mut crossed = own.clone();
    crossed[servers[0].address()]["pool-name"] = "gpu2".into();
    let seen = program(&crossed);
    assert!(seen.stderr.contains("takes this server for gpu2"), "{}", seen.stderr);
}

#[test]
fn a_session_ends_with_its_lease_and_says_so() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    // Clocks may be 30 seconds apart: it is good for a few seconds more.
    let lease =
        Lease { not_before: from_now(-60), expires: from_now(-18), ..pool.shared(7, 256 * MIB) };
    let endless = pool.program("endless", &lease).arg("4");
    let mut running = endless.start_through(&server);
    running.wait_for_line("running");
    server.only_worker();
    assert!(within(SOON, || server.log().contains("a lease is over")), "{}", server.log());
    assert!(within(SOON, || running.has_ended()), "its program is told");
    let ended = running.finish();
    assert!(ended.stderr.contains("lease 7 has expired"), "{}", ended.stderr);
    assert!(ended.stderr.contains("OB0603"), "{}", ended.stderr);
}

#[test]
fn the_next_server_goes_on_with_sessions_and_their_leases() {
    let pool = Pool::create();
    let mut server = pool.serve("gpu1", &[]);
    let lease =
        Lease { not_before: from_now(-60), expires: from_now(-10), ..pool.shared(7, 256 * MIB) };
    let mut running = pool.hold(&lease, &server, 192 * MIB);
    running.wait_for_line("held");
    server.kill();
    server.start_again();
    server.expect_logged("session goes on");
    // Its memory still counts with that of the lease's other sessions.
    let more = pool.hold(&lease, &server, 65 * MIB).finish();
    assert!(!more.status.success() && more.stdout.contains("OUT_OF_MEMORY"), "{more:?}");
    assert!(!running.has_ended());
    server.expect_logged("lease 7 has expired");
    running.kill();
}
