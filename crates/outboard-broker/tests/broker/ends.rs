//! Servers hear of leases that are over, whatever one owner asks for and ends.

use crate::world::{World, ask, asker, request, server, speaker};
use outboard_broker::desk::{Asker, Kind, Outcome, Rules, Stands};
use outboard_pool::api::{Beat, LEASES_OF_A_SERVER};
use outboard_pool::state::{Quota, Quotas};
use outboard_pool::words::{LeaseNumber, Share, Use};
use std::collections::BTreeMap;

fn small() -> Use {
    Use::Shared(Share::try_from(1).unwrap())
}

/// Asks for a hundredth of a device; the lease, if there is one at once.
fn get(world: &mut World, owner: &str, token: Option<&str>) -> Result<LeaseNumber, String> {
    let mut asked = ask(request(owner, 1, small(), 0));
    asked.request.memory_bytes = 1 << 20;
    let by = Asker { token: token.map(Into::into), ..asker(owner) };
    let ticket = world.desk.ask(asked, by, world.now).map_err(|no| no.to_string())?;
    match world.desk.stands(ticket, world.now) {
        Ok(Stands::Settled(Outcome::Granted(number))) => Ok(number),
        other => Err(format!("{other:?}")),
    }
}

fn says(world: &mut World, start: Option<u64>, gone: &[LeaseNumber]) -> Vec<LeaseNumber> {
    let beat = Beat {
        server: server(0, 2),
        address: "gpu0:9470".into(),
        fingerprint: None,
        release: String::new(),
        in_use: Vec::new(),
        gone: gone.to_vec(),
        start,
    };
    let heard = world.desk.beat(&speaker("servers"), &beat, world.now).unwrap();
    assert!(heard.ended.len() <= LEASES_OF_A_SERVER);
    assert_eq!(heard.more, heard.ended.len() == LEASES_OF_A_SERVER);
    heard.ended.into_iter().map(|(lease, _)| lease).collect()
}

fn pool() -> World {
    let mut world = World::new(Rules::default(), vec![(server(0, 2), 0)]);
    says(&mut world, Some(1), &[]);
    world
}

#[test]
fn a_server_hears_first_of_what_was_revoked_and_no_more_of_what_it_has_confirmed() {
    let mut world = pool();
    let revoked = get(&mut world, "ada", Some("t1")).unwrap();
    // Nobody of them alone may have so many.
    for owner in 0..8 {
        for _ in 0..1000 {
            let number = get(&mut world, &format!("crowd{owner}"), None);
            let Ok(number) = number else { break };
            world.desk.end(number, "it was given back", world.now).unwrap();
            if number.0 % 100 == 0 {
                let told = says(&mut world, Some(1), &[]);
                says(&mut world, Some(1), &told);
            }
        }
    }
    let late = get(&mut world, "eve", None).unwrap();
    world.desk.end(late, "it was given back", world.now).unwrap();
    world.desk.end_those_of(|token| token == "t1", world.now);
    let told = says(&mut world, Some(1), &[]);
    assert_eq!(told[..2], [revoked, late], "{} are told", told.len());
    assert!(told.len() < 200, "{} are told", told.len());
    assert!(says(&mut world, Some(1), &told).is_empty(), "it has confirmed all");
    // Another start remembers nothing, and neither does a server of an older release.
    let again = says(&mut world, Some(2), &[]);
    assert_eq!(again.len(), LEASES_OF_A_SERVER);
    assert_eq!(again[0], revoked);
    let more = says(&mut world, Some(2), &again);
    assert!(!more.is_empty() && more.iter().all(|lease| !again.contains(lease)), "{more:?}");
    let (one, two) = (says(&mut world, None, &[]), says(&mut world, None, &[]));
    assert_eq!((one[0], one.len(), &one), (revoked, LEASES_OF_A_SERVER, &two));
}

#[test]
fn a_broker_that_is_started_anew_tells_again_and_revoked_ones_first() {
    let mut world = pool();
    let revoked = get(&mut world, "ada", Some("t1")).unwrap();
    for _ in 0..10 {
        let number = get(&mut world, "bob", None).unwrap();
        world.desk.end(number, "it was given back", world.now).unwrap();
    }
    world.desk.end_those_of(|token| token == "t1", world.now);
    let told = says(&mut world, Some(1), &[]);
    says(&mut world, Some(1), &told);
    world.settle();
    world.restart_broker();
    let again = says(&mut world, Some(1), &[]);
    assert_eq!((again.len(), again[0]), (11, revoked));
    // Nobody has used them, and they have expired.
    world.pass(125);
    assert!(says(&mut world, Some(2), &[]).is_empty());
}

#[test]
fn what_is_not_confirmed_counts_for_its_owner_and_is_bounded() {
    let quota = Quota { devices: Some(3), memory_bytes: None };
    let quotas =
        Quotas { owners: BTreeMap::from([("ada".parse().unwrap(), quota)]), ..Quotas::default() };
    let mut world = World::new(Rules { quotas, ..Rules::default() }, vec![(server(0, 64), 0)]);
    let beat = |world: &mut World, gone: &[LeaseNumber]| {
        let (server, by) = (server(0, 64), speaker("servers"));
        let (address, release) = ("gpu0:9470".into(), String::new());
        let (fingerprint, in_use, gone) = (None, Vec::new(), gone.to_vec());
        let beat = Beat { server, address, fingerprint, release, in_use, gone, start: Some(1) };
        world.desk.beat(&by, &beat, world.now).unwrap()
    };
    beat(&mut world, &[]);
    for _ in 0..3 {
        let number = get(&mut world, "ada", None).unwrap();
        world.desk.end(number, "", world.now).unwrap();
    }
    assert!(get(&mut world, "ada", None).unwrap_err().contains("quota"));
    let mut had = Vec::new();
    let because = loop {
        match get(&mut world, "bob", None) {
            Ok(number) => {
                had.push(number);
                world.desk.end(number, "", world.now).unwrap();
            }
            Err(because) => break because,
        }
    };
    assert_eq!(had.len(), 1024);
    assert!(because.contains("1024 leases of bob are over"), "{because}");
    get(&mut world, "eve", None).expect("others get theirs");
    beat(&mut world, &had);
    world.pass(1);
    get(&mut world, "ada", None).unwrap_err();
    get(&mut world, "bob", None).unwrap();
}

#[test]
fn an_owner_gets_so_many_leases_within_a_time() {
    let mut world = pool();
    let get_and_end = |world: &mut World| {
        let number = get(world, "bob", None)?;
        world.desk.end(number, "", world.now).unwrap();
        says(world, Some(1), &[number]);
        Ok(())
    };
    let count = (0..2000).take_while(|_| get_and_end(&mut world).is_ok()).count();
    assert_eq!(count, 1024);
    let because: Result<(), String> = get_and_end(&mut world);
    assert!(because.unwrap_err().contains("10 a second"));
    // Others get theirs, and who has time waits.
    get(&mut world, "eve", None).unwrap();
    world.ask(request("bob", 1, small(), 60)).unwrap();
    assert_eq!(world.tickets.len(), 1);
    world.ask(request("zoe", 1, small(), 0)).unwrap();
    world.pass(2);
    assert!(world.tickets.is_empty(), "it has its lease");
    let count = (0..2000).take_while(|_| get_and_end(&mut world).is_ok()).count();
    assert!((18..=20).contains(&count), "{count}");
    let no = world.desk.prolong(LeaseNumber(1), 60, world.now).unwrap_err();
    assert_eq!(no.kind, Kind::Unavailable);
}

#[test]
fn requests_of_a_few_owners_that_wait_leave_room_for_others() {
    let mut world = pool();
    world.ask(request("ada", 2, Use::Exclusive, 0)).unwrap();
    let mut wait = |owner: &str| {
        let asked = ask(request(owner, 1, Use::Exclusive, 600));
        world.desk.ask(asked, asker(owner), world.now)
    };
    let mut counts = Vec::new();
    for owner in ["crowd0", "crowd1", "crowd2", "crowd3", "crowd4"] {
        let waiting = (0..5000).take_while(|_| wait(owner).is_ok()).count();
        counts.push(waiting);
    }
    assert_eq!(counts, [4096, 4096, 4096, 2048, 1024]);
    for number in 0..100 {
        wait(&format!("owner{number}")).unwrap();
    }
    assert_eq!(wait("crowd4").unwrap_err().kind, Kind::Busy);
}
