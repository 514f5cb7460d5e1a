//! A server's name belongs to its key.

use crate::world::{World, request, server, speaker};
use jiff::SignedDuration;
use outboard_broker::desk::{Heard, Kind, No, Rules, Speaker};
use outboard_pool::api::{Beat, LeaseUse};
use outboard_pool::words::{Condition, LeaseNumber, Use};

fn said(address: &str, start: u64, devices: usize) -> Beat {
    Beat {
        server: server(0, devices),
        address: address.into(),
        fingerprint: None,
        release: String::new(),
        in_use: Vec::new(),
        gone: Vec::new(),
        start: Some(start),
    }
}

fn with_key(key: Option<&str>) -> Speaker {
    Speaker { key: key.map(Into::into), ..speaker("servers") }
}

fn beat(world: &mut World, key: Option<&str>, beat: &Beat) -> Result<Heard, No> {
    let heard = world.desk.beat(&with_key(key), beat, world.now);
    world.settle();
    heard
}

fn world(allow_unproven: bool) -> World {
    World::new(Rules { allow_unproven, ..Rules::default() }, Vec::new())
}

fn condition(world: &World) -> Condition {
    world.desk.view("").servers[0].condition
}

#[test]
fn the_token_that_all_servers_share_is_no_name() {
    let mut world = world(false);
    let honest = said("gpu0:9470", 1, 2);
    beat(&mut world, Some("own"), &honest).unwrap();
    world.ask(request("ada", 1, Use::Exclusive, 0)).unwrap();
    // With another address, without devices, without a key, after a day and a restart.
    for key in [Some("evil"), None] {
        let no = beat(&mut world, key, &said("evil:1", 2, 0)).unwrap_err();
        assert_eq!(no.kind, Kind::Forbidden);
        assert!(no.sentence.contains("outboard pool forget gpu0"), "{no}");
    }
    assert!(world.desk.lease(LeaseNumber(1)).is_some());
    for _ in 0..26 {
        world.pass(3600);
    }
    world.restart_broker();
    world.pass(3600);
    assert!(beat(&mut world, Some("evil"), &said("evil:1", 3, 2)).is_err());
    beat(&mut world, Some("own"), &honest).unwrap();
    assert_eq!(world.desk.view("").servers[0].address, "gpu0:9470");
}

#[test]
fn a_server_that_was_set_up_anew_has_its_name_once_an_admin_forgets_the_former_one() {
    let mut world = world(false);
    beat(&mut world, Some("old"), &said("gpu0:9470", 1, 2)).unwrap();
    world.ask(request("ada", 1, Use::Exclusive, 0)).unwrap();
    let anew = said("gpu0:9470", 2, 2);
    assert!(beat(&mut world, Some("new"), &anew).is_err());
    let name = "gpu0".parse().unwrap();
    world.desk.forget_server(&name, world.now).unwrap();
    assert_eq!(world.desk.forget_server(&name, world.now).unwrap_err().kind, Kind::NotFound);
    assert!(world.desk.lease(LeaseNumber(1)).is_none(), "its leases are over");
    world.settle();
    world.restart_broker();
    let heard = beat(&mut world, Some("new"), &anew).unwrap();
    // It may be the same machine, and clients still have the lease.
    assert_eq!(heard.ended.iter().map(|one| one.0).collect::<Vec<_>>(), [LeaseNumber(1)]);
    assert_eq!(condition(&world), Condition::Draining);
    beat(&mut world, Some("new"), &Beat { gone: vec![LeaseNumber(1)], ..anew }).unwrap();
    assert_eq!(condition(&world), Condition::Ready);
    assert!(beat(&mut world, Some("old"), &said("gpu0:9470", 1, 2)).is_err());
}

#[test]
fn a_server_with_its_key_comes_back_with_another_certificate_and_address() {
    let mut world = world(false);
    let first =
        Beat { fingerprint: Some(format!("sha256:{}", "0".repeat(64))), ..said("a:1", 1, 1) };
    beat(&mut world, Some("own"), &first).unwrap();
    let fingerprint = Some(format!("sha256:{}", "1".repeat(64)));
    let second = Beat { fingerprint: fingerprint.clone(), ..said("b:1", 2, 1) };
    for _ in 0..4 {
        world.pass(1);
        beat(&mut world, Some("own"), &second).unwrap();
    }
    assert_eq!(
        (world.desk.view("").servers[0].address.as_str(), condition(&world)),
        ("b:1", Condition::Ready)
    );
    world.ask(request("ada", 1, Use::Exclusive, 0)).unwrap();
    assert_eq!(world.desk.reach(&world.held[0])[0].fingerprint, fingerprint);
}

#[test]
fn of_two_servers_with_the_same_key_neither_gets_leases() {
    let mut world = world(false);
    let (one, two) = (said("a:1", 1, 1), said("b:1", 2, 1));
    beat(&mut world, Some("own"), &one).unwrap();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    let lease = LeaseNumber(1);
    // From the first word of the copy on.
    for _ in 0..5 {
        world.pass(1);
        beat(&mut world, Some("own"), &two).unwrap();
        assert_eq!(condition(&world), Condition::Silent);
        beat(&mut world, Some("own"), &one).unwrap();
        assert_eq!(condition(&world), Condition::Silent);
    }
    let because = world.desk.view("").servers[0].because.clone().unwrap();
    assert!(because.contains("a:1 and b:1"), "{because}");
    // What ends, both hear; what one of them refuses, the other one may use.
    world.desk.end(lease, "", world.now).unwrap();
    for said in [&one, &two] {
        let said = Beat { gone: vec![lease], ..said.clone() };
        assert_eq!(beat(&mut world, Some("own"), &said).unwrap().ended[0].0, lease);
    }
    assert_eq!(world.desk.view("").leases.len(), 1, "it has its devices");
    // A minute after the copy has gone all is well.
    for _ in 0..62 {
        world.pass(1);
        beat(&mut world, Some("own"), &Beat { gone: vec![lease], ..one.clone() }).unwrap();
    }
    assert_eq!((condition(&world), world.desk.view("").leases.len()), (Condition::Ready, 0));
}

#[test]
fn a_server_of_an_older_release_is_taken_only_where_the_operator_says_so() {
    let old = Beat { start: None, ..said("gpu0:9470", 0, 1) };
    let no = beat(&mut world(false), None, &old).unwrap_err();
    assert!(no.sentence.contains("--allow-unproven-servers"), "{no}");
    let mut world = world(true);
    beat(&mut world, None, &old).unwrap();
    // Once it proves a key, its name belongs to that.
    beat(&mut world, Some("own"), &said("gpu0:9470", 1, 1)).unwrap();
    assert!(beat(&mut world, None, &old).is_err());
}

#[test]
fn what_a_server_says_of_leases_of_others_keeps_and_ends_nothing() {
    let mut world = World::new(Rules::default(), vec![(server(0, 1), 0), (server(2, 1), 0)]);
    (0..2).for_each(|at| world.beat(at, false).unwrap());
    world.ask(request("ada", 1, Use::Exclusive, 0)).unwrap();
    let lease = LeaseNumber(1);
    let on_first = world.held[0].devices[0].server.as_str() == "gpu0";
    let mut other = said("evil:1", 7, 0);
    other.server = server(if on_first { 2 } else { 0 }, 0);
    let used = LeaseUse {
        lease,
        expires: world.now + SignedDuration::from_hours(1),
        sessions: 9,
        memory_bytes: 1,
    };
    other.in_use.push(used);
    other.gone.push(lease);
    for _ in 0..13 {
        world.pass(10);
        world.desk.beat(&speaker("servers"), &other, world.now).unwrap();
    }
    assert!(world.desk.lease(lease).is_none(), "nobody used it");
    let why = world.desk.why(lease, world.now).unwrap().sentences.join(" ");
    assert!(why.contains("it has expired"), "{why}");
}

#[test]
fn one_owner_registers_so_many_servers() {
    let mut world = world(false);
    let mut count = 0;
    let no = loop {
        let mut another = said("x:1", 1, 0);
        another.server.name = format!("fake{count}").parse().unwrap();
        match beat(&mut world, Some("evil"), &another) {
            Ok(_) => count += 1,
            Err(no) => break no,
        }
    };
    assert_eq!((count, no.kind), (1024, Kind::Busy));
    let others = Speaker { key: Some("own".into()), ..speaker("others") };
    world.desk.beat(&others, &said("gpu0:1", 1, 1), world.now).unwrap();
}

#[test]
fn what_one_owner_says_of_its_servers_is_bounded() {
    let mut world = world(false);
    let of_kinds = |number: usize, kinds: usize| {
        let mut said = said("x:1", 1, kinds);
        said.server.name = format!("fake{number}").parse().unwrap();
        for (at, device) in said.server.devices.iter_mut().enumerate() {
            device.model = format!("model {number} {at}");
        }
        said
    };
    for number in 0..4 {
        beat(&mut world, Some("evil"), &of_kinds(number, 64)).unwrap();
    }
    let no = beat(&mut world, Some("evil"), &of_kinds(4, 1)).unwrap_err();
    assert!(no.kind == Kind::Busy && no.sentence.contains("257 kinds"), "{no}");
    let others = Speaker { key: Some("own".into()), ..speaker("others") };
    world.desk.beat(&others, &said("gpu0:1", 1, 1), world.now).unwrap();

    let mut many = said("x:1", 1, 1);
    let label = |number: usize| (format!("k{number}").parse().unwrap(), "v".parse().unwrap());
    many.server.labels = (0..65).map(label).collect();
    assert_eq!(beat(&mut world, Some("evil"), &many).unwrap_err().kind, Kind::Malformed);
}
