//! Brokers of one pool and members of their etcd are killed, stopped and cut off at random while
//! clients ask, use and give back: no device is given twice, and no lease is lost.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_broker_client::Blocking;
use outboard_e2e::brokers::{ask, give_back, granted, view};
use outboard_e2e::{Brokers, PATIENCE, PlayedServer, within};
use outboard_pool::words::LeaseNumber;
use outboard_test_support::skip;
use rustix::process::Signal;

/// Numbers of a seed that is printed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.roll(most_ms)));
    }
}

/// For so long things break.
const CHAOS: Duration = Duration::from_secs(35);
const CLIENTS: usize = 5;

/// What clients were told.
#[derive(Default)]
struct Told {
    /// The purpose for which each lease was granted.
    granted: Mutex<BTreeMap<LeaseNumber, String>>,
    /// Leases that clients have kept.
    kept: Mutex<Vec<LeaseNumber>>,
    is_over: AtomicBool,
    unbelieved: AtomicU64,
}

/// Asks, uses and gives back until it is over, and keeps the last lease.
fn be_a_client(at: usize, seed: u64, broker: &Blocking, servers: &[PlayedServer], told: &Told) {
    let mut dice = Dice(seed + at as u64 + 1);
    for round in 0.. {
        let purpose = format!("chaos.{at}.{round}");
        let grant = granted(broker, &ask(&format!("owner{at}"), &purpose));
        let other = told.granted.lock().unwrap().insert(grant.number, purpose.clone());
        assert!(other.is_none_or(|other| other == purpose), "{} is two leases", grant.number);
        let name = &grant.servers[0].name;
        let server =
            servers.iter().find(|server| server.name() == name).expect("it is one of them");
        // It panics if another lease has the device.
        if let Err(refused) = server.use_lease(&grant.token) {
            eprintln!("{name} does not believe lease {}: {refused}", grant.number);
            told.unbelieved.fetch_add(1, Ordering::Relaxed);
        }
        if told.is_over.load(Ordering::Relaxed) && round > 0 {
            told.kept.lock().unwrap().push(grant.number);
            return;
        }
        dice.pause(300);
        give_back(broker, grant.number);
    }
}

/// Breaks something of the pool, and mends it.
fn break_and_mend(dice: &mut Dice, brokers: &mut Brokers) -> String {
    let leads = (0..brokers.all.len()).find(|at| brokers.health(*at) == "serving");
    // The leader's end is what matters most.
    let broker = match (dice.roll(3), leads) {
        (0 | 1, Some(leader)) => leader,
        _ => dice.roll(brokers.all.len() as u64) as usize,
    };
    let member = dice.roll(brokers.etcd.count() as u64) as usize;
    match dice.roll(5) {
        0 => {
            brokers.all[broker].kill();
            dice.pause(4000);
            brokers.all[broker].restart();
            format!("broker {broker} was killed")
        }
        1 => {
            brokers.signal(broker, Signal::STOP);
            dice.pause(5000);
            brokers.signal(broker, Signal::CONT);
            format!("broker {broker} was stopped")
        }
        2 => {
            brokers.wires[broker].cut(true);
            dice.pause(5000);
            brokers.wires[broker].cut(false);
            format!("broker {broker} was cut off")
        }
        3 => {
            brokers.etcd.kill(member);
            dice.pause(3000);
            brokers.etcd.restart(member);
            format!("member {member} was killed")
        }
        _ => {
            brokers.etcd.stop(member);
            dice.pause(4000);
            brokers.etcd.go_on(member);
            format!("member {member} was stopped")
        }
    }
}

#[test]
fn no_device_is_given_twice_and_no_lease_is_lost_whatever_breaks() {
    let Some(mut brokers) = Brokers::start(3, CLIENTS, &[]) else { skip!("there is no etcd") };
    let seed = std::env::var("OUTBOARD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919);
    eprintln!("OUTBOARD_SEED={seed}");
    let server = |name: &str| PlayedServer::of(brokers.for_token(&brokers.tokens.server), name, 2);
    let servers = [server("gpu1"), server("gpu2")];
    let clients: Vec<Blocking> =
        brokers.tokens.clients.iter().map(|token| brokers.for_token(token)).collect();
    let told = Told::default();
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        let (told, servers) = (&told, &servers);
        let all = clients.iter().enumerate().take(4);
        let threads: Vec<_> = all
            .map(|(at, client)| scope.spawn(move || be_a_client(at, seed, client, servers, told)))
            .collect();
        let mut dice = Dice(seed);
        let begun = Instant::now();
        while begun.elapsed() < CHAOS && threads.iter().all(|thread| !thread.is_finished()) {
            done.push(break_and_mend(&mut dice, &mut brokers));
            dice.pause(1500);
        }
        told.is_over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("it has seen nothing wrong"));
    });
    let granted = told.granted.into_inner().unwrap();
    eprintln!("{} leases were granted while {}", granted.len(), done.join(", "));
    assert!(granted.len() > 20 && done.len() > 4, "nothing has happened");

    // What is kept is what was granted: seen by a leader that has just read it.
    let former = brokers.leader(None);
    brokers.all[former].kill();
    brokers.leader(Some(former));
    let admin = brokers.for_token(&brokers.tokens.admin);
    let kept = told.kept.into_inner().unwrap();
    assert_eq!(kept.len(), 4, "each client has kept one");
    let there = || -> Vec<LeaseNumber> {
        let live = view(&admin).leases.into_iter().filter(|lease| lease.over.is_none());
        live.map(|lease| lease.number).collect()
    };
    let mut wanted = kept.clone();
    wanted.sort_unstable();
    assert!(
        within(PATIENCE, || {
            let mut there = there();
            there.sort_unstable();
            there == wanted
        }),
        "there are {:?}, and {wanted:?} were kept",
        there()
    );
    kept.iter().for_each(|number| give_back(&admin, *number));
    assert!(within(PATIENCE, || view(&admin).leases.is_empty()), "all is free in the end");
    let unbelieved = told.unbelieved.load(Ordering::Relaxed);
    eprintln!("{unbelieved} leases were over before a server saw them");
}
