//! Several brokers of one pool on a real etcd of three members: who leads, how soon another one
//! does, and what those that stand by say.

use std::collections::VecDeque;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_broker_client::{AskError, Blocking, Method};
use outboard_e2e::brokers::{ask, give_back, granted, view};
use outboard_e2e::raw_https::{answer, connected};
use outboard_e2e::{
    Authority, Brokers, Driver, Folder, Lines, PATIENCE, PlayedServer, PoolBroker, Server, command,
    copy_common, outboard, programs, within,
};
use outboard_pool::api::Standing;
use outboard_pool::words::Condition;
use outboard_test_support::etcd::{Certificates, Etcd};
use outboard_test_support::{End, skip};
use rustix::process::Signal;

/// How long nobody may lead.
const FAILOVER: Duration = Duration::from_secs(5);
/// The same if etcd has to elect first, which may take it several attempts.
const FAILOVER_WITH_ETCDS: Duration = Duration::from_secs(15);

/// What goes on until its standard input ends, and says whether a program has failed.
const FOR_EVER: &str = "echo ready; while \"$programs/attributes\" >/dev/null || { echo failed; exit 1; }; \
    read -t 0.01 line; [ $? -gt 128 ]; do :; done; echo fine";

#[test]
fn programs_notice_nothing_of_a_leader_that_is_killed_stopped_or_cut_off() {
    let Some(mut brokers) = Brokers::start(3, 1, &[]) else { skip!("there is no etcd") };
    let folder = Folder::create();
    let token = folder.write("token", &brokers.tokens.server);
    let fingerprint = brokers.all[0].fingerprint.clone();
    let (urls, state) = (brokers.urls(), folder.path("state"));
    let flags = [
        ["--driver", Driver::chosen().name()],
        ["--tls", "on"],
        ["--socket", "none"],
        ["--state", &state],
        ["--pool", &urls],
        ["--pool-fingerprint", &fingerprint],
        ["--pool-token-file", &token],
        ["--pool-name", "gpu1"],
    ];
    let _server = Server::start_with(&flags.concat(), &[("OUTBOARD_CPU_DEVICES", "2")]);
    let admin = brokers.for_token(&brokers.tokens.admin);
    let is_there = || view(&admin).servers.iter().any(|it| it.condition == Condition::Ready);
    assert!(within(PATIENCE, is_there), "the server has not registered");
    let mut program = command()
        .args(["run", "--no-check", "--gpus", "1", "--", "bash", "-c", FOR_EVER])
        .envs(brokers.variables(&brokers.tokens.clients[0]))
        .env("programs", programs())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("outboard starts");
    let lines = Lines::of(program.stdout.take());
    lines.find("ready");
    let own = view(&admin).leases[0].number;

    let mut say = Vec::new();
    for how in ["killed", "killed with etcd's leader", "stopped", "cut off from etcd"] {
        let former = brokers.leader(None);
        let member = brokers.etcd.leader().filter(|_| how.contains("with"));
        let begun = Instant::now();
        if let Some(member) = member {
            brokers.etcd.kill(member);
        }
        match how {
            "killed" | "killed with etcd's leader" => brokers.all[former].kill(),
            "stopped" => brokers.signal(former, Signal::STOP),
            _ => brokers.wires[former].cut(true),
        }
        // A request while nobody leads, as any other one. Which broker has answered before, a
        // command that has just been started does not know.
        let client = brokers.for_token(&brokers.tokens.clients[0]);
        let grant = granted(&client, &ask("owner0", &format!("x.{former}.{}", say.len())));
        let took = begun.elapsed();
        say.push(format!("{how}: {} ms", took.as_millis()));
        let most = if member.is_some() { FAILOVER_WITH_ETCDS } else { FAILOVER };
        assert!(took < most, "{how}: it took {took:?}");
        match how {
            "killed" | "killed with etcd's leader" => {
                brokers.all[former].restart();
                member.into_iter().for_each(|member| brokers.etcd.restart(member));
            }
            "stopped" => brokers.signal(former, Signal::CONT),
            _ => {
                // It knows that another one may lead.
                assert_eq!(brokers.health(former), "standing by");
                brokers.wires[former].cut(false);
            }
        }
        assert!(within(PATIENCE, || brokers.health(former) == "standing by"), "{how}");
        assert_ne!(brokers.leader(None), former, "{how}");
        give_back(&client, grant.number);
        assert!(view(&admin).leases.iter().any(|lease| lease.number == own), "{how}: it is lost");
    }
    // One that ends in peace says so.
    let former = brokers.leader(None);
    let begun = Instant::now();
    brokers.signal(former, Signal::TERM);
    let client = brokers.for_token(&brokers.tokens.clients[0]);
    granted(&client, &ask("owner0", "in-peace"));
    say.push(format!("ended: {} ms", begun.elapsed().as_millis()));
    eprintln!("until the next lease, of a leader that is {}", say.join(", "));
    drop(program.stdin.take());
    lines.find("fine");
    assert!(program.wait().unwrap().success());
}

/// Opens connections to a broker and keeps the newest ones, each after a question.
fn crowd((address, fingerprint): (&str, &str), token: &str, end: &AtomicBool) {
    const KEPT: usize = 300;
    let ask = format!("GET /v1/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    let mut kept = VecDeque::new();
    while !end.load(Ordering::Relaxed) {
        let Some(mut stream) = connected(address, fingerprint) else { continue };
        let _ = stream.write_all(ask.as_bytes()).and_then(|()| stream.flush());
        kept.push_back(stream);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

/// Asks a broker for leases and gives them back, as fast as it answers.
fn take_and_give(broker: &Blocking, name: &str, end: &AtomicBool) -> usize {
    let mut granted = 0;
    while !end.load(Ordering::Relaxed) {
        let ask = ask("owner0", &format!("{name}.{granted}"));
        if let Ok(Standing::Granted(grant)) = broker.tell(Method::POST, "/v1/requests", &ask) {
            let _ = broker.bytes(Method::DELETE, &format!("/v1/leases/{}", grant.number));
            granted += 1;
        }
    }
    granted
}

/// With connections that stay and with requests, at the one that leads and at the one that stands
/// by.
#[test]
fn a_client_that_floods_all_brokers_keeps_nobody_out() {
    // With so few files, clients have some hundred and fifty places.
    let Some(brokers) = Brokers::start_with_files(512, 2, 2) else { skip!("there is no etcd") };
    let _server = PlayedServer::of(brokers.for_token(&brokers.tokens.server), "gpu1", 4);
    let admin = brokers.for_token(&brokers.tokens.admin);
    let [flood, other] = [0, 1].map(|at: usize| brokers.tokens.clients[at].as_str());
    let end = AtomicBool::new(false);
    let is_served = |name: &str| {
        let client = brokers.for_token(other);
        for number in 0..5 {
            give_back(
                &client,
                granted(&client, &ask("owner1", &format!("{name}.{number}"))).number,
            );
        }
        let ready = || view(&admin).servers.iter().all(|it| it.condition == Condition::Ready);
        assert!(within(PATIENCE, ready), "{name}: the server's beats do not come through");
    };
    std::thread::scope(|scope| {
        let _end = End(&end);
        let (end, name) = (&end, |at: usize| format!("flood{at}"));
        for broker in &brokers.all {
            let place = (broker.address.as_str(), broker.fingerprint.as_str());
            scope.spawn(move || crowd(place, flood, end));
        }
        let asking = [0, 1].map(|at: usize| {
            let all = brokers.for_token(flood);
            scope.spawn(move || take_and_give(&all, &name(at), end))
        });
        is_served("first");
        let former = brokers.leader(None);
        brokers.signal(former, Signal::STOP);
        is_served("without-the-leader");
        brokers.signal(former, Signal::CONT);
        assert!(within(PATIENCE, || brokers.health(former) == "standing by"));
        assert_ne!(brokers.leader(None), former);
        is_served("afterwards");
        end.store(true, Ordering::Relaxed);
        let taken: usize = asking.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(taken > 20, "it was a flood: {taken} leases");
    });
}

#[test]
fn a_broker_that_stands_by_says_who_leads_and_one_with_another_key_does_not_lead() {
    let Some(mut brokers) = Brokers::start(2, 1, &[]) else { skip!("there is no etcd") };
    let _server = PlayedServer::of(brokers.for_token(&brokers.tokens.server), "gpu1", 1);
    let leader = brokers.leader(None);
    let other = 1 - leader;
    let there = format!("https://{}", brokers.all[leader].address);
    let named = |at: usize, token: &str| brokers.all[at].for_token(token);
    let admin = &brokers.tokens.admin;
    let refused = named(other, admin).bytes(Method::GET, "/v1/pool").unwrap_err();
    assert!(matches!(&refused, AskError::Refused { status: 503, .. }), "{refused:?}");
    assert!(refused.to_string().contains(&format!("the one at {there} leads")), "{refused}");
    // Strangers are told nothing but where the page is.
    let stranger = named(other, "obt_00").bytes(Method::GET, "/v1/pool").unwrap_err();
    assert!(matches!(stranger, AskError::Refused { status: 401, .. }), "{stranger:?}");
    let wanted = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let page = answer(&brokers.all[other], wanted);
    assert!(page.starts_with("HTTP/1.1 307"), "{page}");
    assert!(page.to_lowercase().contains(&format!("location: {there}/")), "{page}");
    for (at, says) in [(leader, "1"), (other, "0")] {
        let text = named(at, admin).bytes(Method::GET, "/metrics").unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(&format!("outboard_pool_broker_leads {says}\n")), "{text}");
    }
    // Who names only that one is told so; who names both need not care.
    let token = &brokers.tokens.clients[0];
    let one =
        brokers.all[other].command(token, &["run", "--no-check", "--gpus", "1", "--", "true"]);
    let said = String::from_utf8_lossy(&one.stderr).into_owned();
    assert!(!one.status.success() && said.contains("name all brokers of the pool"), "{said}");
    let mut both = command();
    both.args(["run", "--no-check", "--gpus", "1", "--", "true"]).envs(brokers.variables(token));
    assert!(both.output().unwrap().status.success());

    // A broker of its own making has another key, and makes none where the pool has one.
    let stranger = |folder: Folder| {
        let flags = ["--store".to_owned(), brokers.etcd.url()];
        PoolBroker::at("127.0.0.1:0", folder.into(), flags.to_vec())
    };
    let third = stranger(Folder::create());
    let said = third.log.find("this broker cannot lead");
    assert!(said.contains("copy lease.key"), "{said}");
    assert!(!std::path::Path::new(&third.state.path("broker/lease.key")).exists());
    let folder = Folder::create();
    copy_common(&brokers.all[0].state, &folder);
    std::fs::remove_file(folder.path("broker/lease.key")).unwrap();
    let made = outboard(&["broker", "new-key", "--state", &folder.path("broker")]);
    assert!(made.status.success(), "{made:?}");
    let fourth = stranger(folder);
    fourth.log.find("this broker cannot lead");
    brokers.all.iter_mut().for_each(PoolBroker::kill);
    std::thread::sleep(FAILOVER);
    for broker in [&third, &fourth] {
        let health = broker.for_token("").bytes(Method::GET, "/healthz").unwrap();
        assert_eq!(health.as_ref(), b"standing by\n");
    }
    brokers.all[other].restart();
    assert_eq!(brokers.leader(Some(leader)), other);
}

#[test]
fn etcd_and_broker_know_each_other_by_certificates() {
    let folder = Folder::create();
    let ca = Authority::new("etcd's authority");
    let authority = folder.write("ca.crt", &ca.certificate);
    let member = ca.sign(&folder, "member", 2099);
    let certificates = Certificates { authority: authority.clone(), member };
    let Some(etcd) = Etcd::start_with(1, Some(&certificates)) else { skip!("there is no etcd") };
    let [own, key] = ca.sign(&folder, "broker", 2099);
    let flags = |authority: &str, own: &[String]| {
        let mut flags =
            vec!["--store".to_owned(), etcd.url(), "--store-ca".into(), authority.into()];
        if let [own, key] = own {
            flags.extend(["--store-cert".into(), own.clone(), "--store-key".into(), key.clone()]);
        }
        flags
    };
    let start = |flags| PoolBroker::at("127.0.0.1:0", Folder::create().into(), flags);
    let broker = start(flags(&authority, &[own.clone(), key.clone()]));
    broker.log.find("brokering");
    drop(broker);
    // Without a certificate it is a stranger to etcd, as an etcd of another authority is to it.
    let other = Authority::new("another one");
    let theirs = folder.write("other.crt", &other.certificate);
    for flags in [flags(&authority, &[]), flags(&theirs, &[own, key])] {
        let said = start(flags).log.find("this broker cannot lead");
        assert!(said.contains("etcd does not answer"), "{said}");
    }
    let plain = outboard(&["broker", "--store", "etcd://db1.example:2379"]);
    let said = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(!plain.status.success() && said.contains("in the clear"), "{said}");
}
