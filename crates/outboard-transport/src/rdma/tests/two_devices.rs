//! Streams between two devices, which share nothing but a link, and what becomes of them when that
//! goes. The tests change the link, so they run one after the other.

use std::io;
use std::time::{Duration, Instant};

use outboard_rdma::{Device, Endpoint, Error};
use outboard_test_support::{run, skip};

use super::{PATIENCE, connect, exchange, met};
use crate::blocking::{read_exact, write_all};
use crate::rdma::{Settings, move_to, take_up};
use crate::settling::Outcome;
use crate::stream::Interest;

/// Two devices that reach each other, the network interface of the first, and the script that
/// switches it on, where the machine was set up so: `rxe0 rxe1 veth0 FILE`.
const PAIR: &str = "OUTBOARD_TEST_RDMA_PAIR";

/// What [`PAIR`] says.
fn names() -> Option<[String; 4]> {
    let said = std::env::var(PAIR).ok()?;
    said.split_whitespace().map(str::to_owned).collect::<Vec<_>>().try_into().ok()
}

macro_rules! needs_two_devices {
    () => {
        match names() {
            Some(names) => names,
            None => skip!("{PAIR} names no two devices"),
        }
    };
}

fn endpoints([one, other, ..]: &[String; 4]) -> Result<[Endpoint; 2], Error> {
    Ok([Device::open(one)?.endpoint(None)?, Device::open(other)?.endpoint(None)?])
}

/// Both sides of a stream that has carried something hear within seconds that the link has gone by
/// one command; after the other one, the devices carry the next stream.
fn hear_of(names: &[String; 4], goes: &str, comes: &str, wanted: &str) {
    let (client, server) = connect(endpoints(names).unwrap(), [Settings::default(); 2]).unwrap();
    exchange(&*client, &*server, 100_000);
    run(&goes.replace("LINK", &names[2]));
    let began = Instant::now();
    let lost = (|| -> io::Result<()> {
        write_all(&*client, b"is anybody there?")?;
        read_exact(&*client, &mut [0])
    })();
    let end = server.wait(Interest::READ, None, Some(PATIENCE)).unwrap();
    let taken = began.elapsed();
    run(&comes.replace("LINK", &names[2]).replace("PLUG_IN", &names[3]));
    let error = lost.unwrap_err();
    assert!(error.to_string().contains(wanted), "{error}");
    assert!(end.read && end.hangup, "the other side is told over the stream that is left");
    assert!(taken < Duration::from_secs(15), "{taken:?}");
    drop((client, server));
    let began = Instant::now();
    // The port's state follows the link's.
    let again = loop {
        match endpoints(names) {
            Ok(endpoints) => break endpoints,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    };
    let (client, server) = connect(again, [Settings::default(); 2]).unwrap();
    exchange(&*client, &*server, 1000);
}

#[test]
fn two_devices_carry_what_one_does() {
    let names = needs_two_devices!();
    let (client, server) = connect(endpoints(&names).unwrap(), [Settings::default(); 2]).unwrap();
    exchange(&*client, &*server, 300_000);
}

#[test]
fn a_link_that_is_switched_off_ends_both_sides() {
    let names = needs_two_devices!();
    let said = "the RDMA connection has failed";
    hear_of(&names, "ip link set LINK down", "sh PLUG_IN", said);
}

#[test]
fn a_link_that_loses_everything_ends_both_sides() {
    let names = needs_two_devices!();
    let goes = "tc qdisc add dev LINK root netem loss 100%";
    hear_of(&names, goes, "tc qdisc del dev LINK root", "the peer's adapter no longer answers");
}

/// Connecting does not tell whether anything arrives: a message does.
#[test]
fn sides_that_do_not_hear_each_other_go_on_as_before() {
    let names = needs_two_devices!();
    let ([of_client, of_server], [client, server]) = (met(), endpoints(&names).unwrap());
    run(&format!("tc qdisc add dev {} root netem loss 100%", names[2]));
    let deadline = Instant::now() + PATIENCE;
    let (settings, began) = (Settings::default(), Instant::now());
    let (moving, taking) = std::thread::scope(|scope| {
        let taking = scope.spawn(|| take_up(&of_server, |_| Ok(server), settings, deadline));
        (move_to(&of_client, (0, false), client, settings, deadline), taking.join().unwrap())
    });
    let taken = began.elapsed();
    run(&format!("tc qdisc del dev {} root netem", names[2]));
    let Outcome::Stays(Some(why)) = moving.unwrap() else { panic!("nothing was heard") };
    assert!(why.to_string().contains("not heard for 2 seconds"), "{why}");
    assert!(matches!(taking.unwrap(), (Outcome::Stays(_), None)));
    assert!(taken < Duration::from_secs(10), "{taken:?}");
    exchange(&*of_client, &*of_server, 10_000);
}
