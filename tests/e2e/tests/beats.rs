//! A server of a pool and its broker: what each hears of the other, and what becomes of sessions.

use std::time::Duration;

use outboard_e2e::broker::{Broker, Manner};
use outboard_e2e::pool::{MIB, Pool, from_now};
use outboard_e2e::{Driver, Server, programs, within};
use outboard_pool::api::Beat;
use outboard_pool::lease::{Lease, SigningKey, sign};
use outboard_pool::words::{Condition, Health, LeaseNumber};

/// What takes a beat or two takes no longer, on a machine that is busy.
const SOON: Duration = Duration::from_secs(30);

fn serve(broker: &Broker, args: &[&str]) -> Server {
    Pool::serve_with("gpu1", &[&broker.arguments()[..], args].concat())
}

/// Waits for a beat that is so.
fn hears(broker: &Broker, is_so: impl Fn(&Beat) -> bool) -> Beat {
    // By the second beat, the server has heard the answer to the first.
    assert!(within(SOON, || broker.talk().beats > 1), "{:?}", broker.talk());
    let heard = || broker.talk().heard.clone().map(|(_, beat)| beat).filter(|beat| is_so(beat));
    assert!(within(SOON, || heard().is_some()), "{:?}", broker.talk());
    heard().expect("it was so a moment ago")
}

fn keys(pool: &Pool) -> Vec<String> {
    vec![pool.broker.public().to_text()]
}

#[test]
fn a_server_says_what_it_has_and_believes_the_brokers_keys() {
    let pool = Pool::create();
    let broker = Broker::start(keys(&pool));
    let token = pool.folder.write("token", "obt_server\n");
    let server = serve(&broker, &["--pool-token-file", &token, "--label", "rack=r7,zone=a"]);
    let beat = hears(&broker, |_| true);
    assert_eq!(broker.talk().heard.as_ref().expect("it was heard").0, "Bearer obt_server");
    assert_eq!((beat.server.name.as_str(), &*beat.address), ("gpu1", server.address()));
    let labels: Vec<String> =
        beat.server.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["rack=r7", "zone=a"]);
    assert_eq!(beat.server.condition, Condition::Ready);
    let uuids: Vec<&str> = beat.server.devices.iter().map(|device| device.uuid.as_str()).collect();
    assert_eq!(uuids, pool.devices);
    assert!(beat.server.devices.iter().all(|device| device.memory_bytes > MIB));
    if Driver::chosen() == Driver::Cpu {
        assert!(beat.server.devices[0].model.starts_with("Outboard CPU"), "{beat:?}");
    }

    let lease = pool.shared(7, 256 * MIB);
    let mut running = pool.hold(&lease, &server, 64 * MIB);
    running.wait_for_line("held");
    let beat = hears(&broker, |beat| beat.in_use.iter().any(|one| one.memory_bytes >= 64 * MIB));
    let [used] = &beat.in_use[..] else { panic!("one lease: {beat:?}") };
    assert_eq!((used.lease, used.sessions), (LeaseNumber(7), 1));
    running.kill();
    hears(&broker, |beat| beat.in_use.is_empty());

    // A broker that has another key now.
    broker.talk().answer.keys = vec![SigningKey::generate().expect("a key").public().to_text()];
    let refused = || {
        let program = pool.program("devices", &pool.shared(8, MIB)).through(&server);
        program.stderr.contains("OB0409")
    };
    assert!(within(SOON, refused), "{}", server.log());
}

#[test]
fn a_server_says_how_its_devices_do() {
    let pool = Pool::create();
    let broker = Broker::start(keys(&pool));
    let (library, fails) = (programs().join("fake_nvml"), pool.folder.path("fails"));
    let library = library.display().to_string();
    let own = ["--driver", "cpu", "--pool-name", "gpu1", "--nvml", &library];
    let env = [("OUTBOARD_CPU_DEVICES", "2"), ("FAKE_NVML_FAILS", &*fails)];
    let server = Server::start_with(&[&own[..], &broker.arguments()].concat(), &env);
    let beat = hears(&broker, |beat| beat.server.devices.iter().all(|one| one.load_percent > 0));
    let [first, second] = &beat.server.devices[..] else { panic!("two devices: {beat:?}") };
    assert_eq!((first.load_percent, first.health, second.health), (43, Health::Well, Health::Well));
    assert_eq!(first.nvlink, [second.uuid.clone()].into());
    assert_eq!(second.nvlink, [first.uuid.clone()].into());

    std::fs::write(&fails, "").expect("it can be written");
    let is_ill = |beat: &Beat| beat.server.devices[0].health == Health::Ill;
    let beat = hears(&broker, is_ill);
    assert_eq!(beat.server.devices[1].health, Health::Well);
    server.expect_logged("a device has failed");
    std::fs::remove_file(&fails).expect("it was there");
    hears(&broker, |beat| !is_ill(beat));
    server.expect_logged("is well again");
}

#[test]
fn a_lease_that_is_revoked_ends_its_sessions_within_seconds() {
    let pool = Pool::create();
    let broker = Broker::start(keys(&pool));
    let server = serve(&broker, &[]);
    hears(&broker, |_| true);
    let lease = pool.shared(7, 256 * MIB);
    let mut running = pool.program("endless", &lease).arg("4").start_through(&server);
    running.wait_for_line("running");
    let mut other = pool.hold(&pool.shared(8, 256 * MIB), &server, MIB);
    other.wait_for_line("held");
    broker.talk().answer.ended = vec![LeaseNumber(7)];
    let revoked = std::time::Instant::now();
    assert!(within(SOON, || running.has_ended()), "{}", server.log());
    let took = revoked.elapsed();
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    let ended = running.finish();
    assert!(ended.stderr.contains("lease 7 was revoked or given back"), "{}", ended.stderr);
    assert!(ended.stderr.contains("OB0603"), "{}", ended.stderr);
    // The broker hears that the device is free, and the lease is of no use any more.
    hears(&broker, |beat| beat.gone == [LeaseNumber(7)]);
    let again = pool.program("devices", &lease).through(&server);
    assert!(again.stderr.contains("OB0603"), "{}", again.stderr);
    assert!(!other.has_ended());
    other.kill();
}

#[test]
fn a_broker_renews_what_is_used_and_sessions_do_without_it_until_the_end() {
    let pool = Pool::create();
    let broker = Broker::start(keys(&pool));
    let server = serve(&broker, &[]);
    hears(&broker, |_| true);
    // Good for a few seconds more, as clocks may be 30 seconds apart.
    let short =
        Lease { not_before: from_now(-60), expires: from_now(-18), ..pool.shared(7, 256 * MIB) };
    let renewed = Lease { expires: from_now(-8), ..short.clone() };
    let mut running = pool.program("endless", &short).arg("4").start_through(&server);
    running.wait_for_line("running");
    broker.talk().answer.renewed = vec![
        "nonsense".to_owned(),
        sign(&renewed, &SigningKey::generate().expect("a key")).expect("signed"),
        sign(&renewed, &pool.broker).expect("signed"),
    ];
    hears(&broker, |beat| beat.in_use.iter().any(|one| one.expires == renewed.expires));
    // Now it is away: refuses, says nonsense, says too much, says nothing.
    let huge = vec![b' '; 9 << 20];
    for manner in [
        Manner::Says(503, br#"{"error":"go away"}"#.to_vec()),
        Manner::Says(200, b"[]".to_vec()),
        Manner::Says(200, huge),
        Manner::IsSilent,
    ] {
        let before = broker.talk().beats;
        broker.talk().manner = manner;
        assert!(within(SOON, || broker.talk().beats > before), "{}", server.log());
    }
    server.expect_logged("go away");
    // The session has ended neither with the first end nor with the broker.
    let until = renewed.expires.as_millisecond() + 30_000;
    assert!(within(SOON, || running.has_ended()), "{}", server.log());
    let late = jiff::Timestamp::now().as_millisecond() - until;
    assert!((0..5_000).contains(&late), "it ended {late} ms after its lease");
    let ended = running.finish();
    assert!(ended.stderr.contains("lease 7 has expired"), "{}", ended.stderr);
}

/// While the broker is away, a server that was upgraded or killed knows what it said.
#[test]
fn the_next_server_knows_what_the_broker_has_said() {
    let pool = Pool::create();
    let broker = Broker::start(keys(&pool));
    let mut server = serve(&broker, &[]);
    broker.talk().answer.ended = vec![LeaseNumber(8)];
    hears(&broker, |_| true);
    let lease = pool.shared(7, 256 * MIB);
    let mut running = pool.hold(&lease, &server, 192 * MIB);
    running.wait_for_line("held");
    broker.talk().manner = Manner::IsSilent;
    let looks = |server: &Server| {
        let more = pool.hold(&lease, server, 65 * MIB).finish();
        assert!(more.stdout.contains("OUT_OF_MEMORY"), "{more:?}");
        pool.program("devices", &lease).through(server).expect_success("another process");
        let ended = pool.program("devices", &pool.shared(8, MIB)).through(server);
        assert!(ended.stderr.contains("OB0603"), "{}", ended.stderr);
    };
    looks(&server);
    server.ask_to_upgrade();
    server.expect_upgrades(1);
    looks(&server);
    server.kill();
    server.start_again();
    server.expect_logged("session goes on");
    looks(&server);
    assert!(!running.has_ended());
    running.kill();
}

#[test]
fn a_server_that_drains_says_so() {
    let pool = Pool::create();
    let broker = Broker::start(keys(&pool));
    let server = serve(&broker, &["--drain", "20"]);
    hears(&broker, |beat| beat.server.condition == Condition::Ready);
    let mut running = pool.hold(&pool.shared(7, 256 * MIB), &server, MIB);
    running.wait_for_line("held");
    server.ask_to_stop();
    hears(&broker, |beat| beat.server.condition == Condition::Draining);
    running.kill();
}

#[test]
fn a_broker_that_is_not_the_right_one_is_not_believed() {
    let pool = Pool::create();
    let (broker, other) = (Broker::start(keys(&pool)), Broker::start(keys(&pool)));
    let wrong = ["--pool", &broker.url, "--pool-fingerprint", &other.fingerprint];
    let server = Pool::serve_with("gpu1", &wrong);
    server.expect_logged("the broker does not hear this server");
    assert_eq!(broker.talk().beats, 0);
    let refused = pool.program("devices", &pool.shared(7, MIB)).through(&server);
    assert!(refused.stderr.contains("OB0409"), "{}", refused.stderr);
    let serve = ["serve", "--driver", "cpu", "--pool-name", "gpu1", "--pool", &broker.url];
    let unknown = outboard_e2e::outboard(&serve);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && said.contains("--pool-fingerprint"), "{said}");
}
