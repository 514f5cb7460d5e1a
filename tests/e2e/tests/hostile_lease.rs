//! Hellos of strangers at a server of a pool: whatever they show, nobody gets in, and the server
//! goes on.

use std::net::TcpStream;

use outboard_e2e::pool::{MIB, Pool, half};
use outboard_e2e::raw_client::hello_saying;
use outboard_e2e::{Footprint, Server};
use outboard_pool::lease::Lease;
use outboard_wire::handshake::lease::{LEASE, ShownLease};
use outboard_wire::handshake::{Extensions, Purpose, Refusal, RefusalCode};
use outboard_wire::{Encode, Writer};

/// Bytes that stand for a part of a hello.
struct Raw(Vec<u8>);

impl Encode for Raw {
    fn encode(&self, writer: &mut Writer) {
        writer.fixed(&self.0);
    }
}

fn say(server: &Server, part: &impl Encode) -> Result<(), Refusal> {
    let mut more = Extensions::default();
    more.set(LEASE, part);
    let stream = TcpStream::connect(server.address()).expect("the server listens");
    hello_saying(stream, Purpose::Probe, more).map(drop)
}

fn bytes(shown: &ShownLease) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put(shown);
    writer.into_vec()
}

fn is_refused(server: &Server, part: Vec<u8>, what: &str) {
    let refusal = say(server, &Raw(part)).expect_err(what);
    let fitting = [RefusalCode::BadHello, RefusalCode::NotAuthenticated];
    assert!(fitting.contains(&refusal.code), "{what}: {refusal:?}");
    let said = &refusal.sentence;
    assert!(said.len() < 1000 && !said.contains('\u{1b}'), "{} bytes: {what}", said.len());
}

#[test]
fn a_lease_with_any_bytes_changed_or_missing_lets_nobody_in() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let lease = pool.shared(7, 256 * MIB);
    say(&server, &pool.shown(&lease, 1)).expect("a good one");
    let whole = bytes(&pool.shown(&lease, 2));
    let step = (whole.len() / 60).max(1);
    for cut in (0..whole.len()).step_by(step) {
        is_refused(&server, whole[..cut].to_vec(), "one that is cut");
    }
    for at in (0..whole.len()).step_by(step) {
        let mut changed = whole.clone();
        changed[at] ^= 0x11;
        is_refused(&server, changed, "one with a byte changed");
    }
    // What a later release appends is skipped.
    say(&server, &Raw([&whole[..], &[1, 2, 3]].concat())).expect("the same and more");
    is_refused(&server, whole, "the same again");
}

#[test]
fn what_is_large_or_strange_costs_little() {
    let pool = Pool::create();
    let server = pool.serve("gpu1", &[]);
    let lease = pool.shared(7, 256 * MIB);
    say(&server, &pool.shown(&lease, 1)).expect("a good one");
    let before = Footprint::of(server.id()).expect("the server runs").memory;
    let good = pool.shown(&lease, 2);
    let long = "x".repeat(60 << 10);
    for token in [
        String::new(),
        long.clone(),
        format!("v4.public.{long}"),
        format!("v4.public.{}.{long}", "A".repeat(1000)),
        "v4.local.AAAA".to_owned(),
        format!("{}.", good.token),
        good.token.replacen("v4", "v3", 1),
    ] {
        is_refused(&server, bytes(&ShownLease { token, ..good.clone() }), "a strange token");
    }
    for name in ["", "\u{1b}[2J", &long[..40 << 10]] {
        let shown = ShownLease { server: name.to_owned(), ..good.clone() };
        is_refused(&server, bytes(&shown), "a strange name");
    }
    for time in [0, u64::MAX, u64::MAX / 2] {
        is_refused(&server, bytes(&ShownLease { time, ..good.clone() }), "a strange time");
    }
    // A lease of a broker gone wrong: devices that there are not, and many of them.
    let mut devices: Vec<_> = (0..100).map(|_| pool.granted("gpu1", 0, MIB, half())).collect();
    for (number, device) in devices.iter_mut().enumerate() {
        device.device = format!("GPU-{number}").parse().expect("a name");
    }
    let many = Lease { devices, ..pool.shared(8, MIB) };
    let refusal = say(&server, &pool.shown(&many, 3)).expect_err("none of them is here");
    assert_eq!(refusal.code, RefusalCode::NoDevice, "{refusal:?}");
    let after = Footprint::of(server.id()).expect("the server runs").memory;
    assert!(after < before + (8 << 20), "{after} bytes, and {before} before");
    say(&server, &pool.shown(&lease, 4)).expect("the server goes on");
}
