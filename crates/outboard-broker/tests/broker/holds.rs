//! What is kept for the first who wait, and lent meanwhile.

use crate::world::{World, ask, asker, request, server};
use jiff::{SignedDuration, Timestamp};
use outboard_broker::desk::{Rules, Stands};
use outboard_pool::api::Ask;
use outboard_pool::lease::Lease;
use outboard_pool::state::{Quota, Quotas};
use outboard_pool::words::{Condition, Request, Servers, Share, Use};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MINUTE: u32 = 60;
const HOUR: u32 = 60 * MINUTE;

/// Leases last as long as they may: nobody gives one back.
fn rules() -> Rules {
    let longest = SignedDuration::from_hours(6);
    Rules { life: longest, longest, hold: SignedDuration::from_mins(30), ..Rules::default() }
}

fn world(devices: &[usize]) -> World {
    let servers = devices.iter().enumerate().map(|(at, count)| (server(at, *count), 0));
    let mut world = World::new(rules(), servers.collect());
    beat(&mut world);
    world
}

fn beat(world: &mut World) {
    for at in 0..world.servers.len() {
        world.beat(at, false).unwrap();
    }
}

/// Time passes, and no server is silent.
fn go_on(world: &mut World, seconds: u32) {
    let end = world.now + SignedDuration::from_secs(seconds.into());
    while world.now < end {
        world.now = end.min(world.now + SignedDuration::from_secs(6));
        beat(world);
    }
}

/// Somebody asks for whole devices, and waits as long as it takes.
fn wants(world: &mut World, owner: &str, devices: u32, for_seconds: Option<u32>) -> u64 {
    asks(world, Ask { for_seconds, ..ask(request(owner, devices, Use::Exclusive, u32::MAX)) })
}

fn asks(world: &mut World, ask: Ask) -> u64 {
    let owner = ask.request.owner.clone();
    let ticket = world.desk.ask(ask, asker(owner.as_str()), world.now).unwrap();
    world.settle();
    world.tickets.push((ticket, owner));
    world.collect();
    ticket
}

/// Whether the owner has had a lease.
fn has(world: &World, owner: &str) -> bool {
    world.held.iter().any(|lease| lease.owner.as_str() == owner)
}

/// What an owner's lease says now.
fn lease(world: &World, owner: &str) -> Lease {
    let held = world.held.iter().rfind(|lease| lease.owner.as_str() == owner).unwrap();
    world.desk.lease(held.number).unwrap().clone()
}

#[test]
fn who_says_a_short_time_passes_and_the_others_in_time() {
    let mut world = world(&[4]);
    wants(&mut world, "carol", 1, Some(5 * HOUR));
    let end = lease(&world, "carol").renewable_until;
    wants(&mut world, "mallory", 4, None);
    // For half an hour only those pass who are gone by then.
    wants(&mut world, "bob", 1, Some(20 * MINUTE));
    wants(&mut world, "dora", 1, Some(40 * MINUTE));
    wants(&mut world, "eve", 1, None);
    assert!(has(&world, "bob") && !has(&world, "dora") && !has(&world, "eve"));
    let mut now = ask(request("fred", 1, Use::Exclusive, 0));
    now.for_seconds = Some(40 * MINUTE);
    let no = world.desk.ask(now, asker("fred"), world.now).unwrap_err();
    assert!(no.sentence.contains("--for"), "{no}");
    go_on(&mut world, 31 * MINUTE);
    assert!(has(&world, "dora"));
    // Eve's lease ends with Carol's, for which the request for all waits in any case.
    let eves = lease(&world, "eve");
    assert_eq!(eves.renewable_until, end);
    assert!(world.desk.loan(eves.number).is_some());
    // In the last hour nothing is lent to those who do not say for how long.
    go_on(&mut world, 4 * HOUR - 20 * MINUTE);
    wants(&mut world, "fred", 1, None);
    wants(&mut world, "gina", 1, Some(10 * MINUTE));
    assert!(!has(&world, "fred") && has(&world, "gina"));
    assert!(!has(&world, "mallory"));
    go_on(&mut world, 51 * MINUTE);
    assert!(has(&world, "mallory"));
}

#[test]
fn what_the_first_does_not_need_is_everybodys() {
    let mut world = world(&[4, 8]);
    let of = |owner: &str, devices: u32| {
        let mut request = request(owner, devices, Use::Exclusive, u32::MAX);
        request.model = Some("H100".into());
        ask(request)
    };
    asks(&mut world, of("ada", 5));
    asks(&mut world, of("mallory", 4));
    assert!(has(&world, "ada") && !has(&world, "mallory"));
    asks(&mut world, of("eve", 1));
    assert!(has(&world, "eve"), "four of the eight are kept");
    assert!(world.desk.loan(lease(&world, "eve").number).is_none());
    wants(&mut world, "gina", 4, None);
    assert!(has(&world, "gina"), "the other kind is nobody's");
}

#[test]
fn a_loan_is_none_any_more_once_nobody_waits_for_it() {
    let mut world = world(&[2]);
    wants(&mut world, "carol", 1, Some(5 * HOUR));
    let all = wants(&mut world, "mallory", 2, None);
    go_on(&mut world, 31 * MINUTE);
    wants(&mut world, "eve", 1, None);
    let lent = lease(&world, "eve");
    // Nor does its asker have it prolonged.
    world.desk.prolong(lent.number, u32::MAX, world.now).unwrap();
    assert_eq!(lease(&world, "eve").renewable_until, lent.renewable_until);
    // It outlasts a server that is silent for a while.
    (0..2).for_each(|_| world.pass(6));
    assert!(world.desk.loan(lent.number).is_some());
    go_on(&mut world, 10);
    assert!(world.desk.loan(lent.number).is_some());
    world.desk.withdraw(all, world.now);
    go_on(&mut world, 1);
    let whole = lease(&world, "eve");
    assert_eq!(whole.renewable_until, whole.not_before + SignedDuration::from_hours(6));
    assert!(world.desk.loan(whole.number).is_none());
}

/// Who waits for a server that is gone learns which one that is, and what an admin can do.
#[test]
fn a_request_that_only_silent_servers_could_serve_says_so() {
    let mut world = world(&[1, 1]);
    let spread =
        Request { servers: Servers::Distinct, ..request("ada", 2, Use::Exclusive, u32::MAX) };
    // One goes on to speak, the other one is gone.
    for _ in 0..4 {
        world.now += SignedDuration::from_secs(6);
        world.beat(0, false).unwrap();
        world.settle();
    }
    let ticket = asks(&mut world, ask(spread));
    let Stands::Waiting { because, .. } = world.desk.stands(ticket, world.now).unwrap() else {
        panic!("it waits")
    };
    assert!(
        because.contains("gpu1 is silent") && because.contains("outboard pool forget"),
        "{because}"
    );
}

#[test]
fn after_a_restart_nothing_is_lent() {
    let mut world = world(&[2]);
    wants(&mut world, "carol", 1, Some(5 * HOUR));
    wants(&mut world, "mallory", 2, None);
    go_on(&mut world, 31 * MINUTE);
    wants(&mut world, "eve", 1, None);
    let lent = lease(&world, "eve");
    world.restart_broker();
    let whole = world.desk.lease(lent.number).unwrap();
    assert_eq!(whole.renewable_until, whole.not_before + SignedDuration::from_hours(6));
}

#[test]
fn who_asks_again_keeps_nothing_unused_again() {
    let mut world = world(&[2]);
    wants(&mut world, "carol", 1, Some(5 * HOUR));
    let all = wants(&mut world, "mallory", 2, None);
    go_on(&mut world, 31 * MINUTE);
    world.desk.withdraw(all, world.now);
    wants(&mut world, "mallory", 2, None);
    wants(&mut world, "eve", 1, Some(HOUR));
    assert!(has(&world, "eve"));
}

#[test]
fn a_scheduler_that_says_no_time_is_lent_nothing() {
    let mut world = world(&[2]);
    wants(&mut world, "carol", 1, Some(5 * HOUR));
    wants(&mut world, "mallory", 2, None);
    go_on(&mut world, 31 * MINUTE);
    let of = |owner: &str| ask(request(owner, 1, Use::Exclusive, u32::MAX));
    asks(&mut world, Ask { life_seconds: Some(600), ..of("pod") });
    asks(&mut world, Ask { life_seconds: Some(600), for_seconds: Some(600), ..of("job") });
    assert!(!has(&world, "pod") && has(&world, "job"));
}

#[test]
fn who_waits_for_a_quota_besides_keeps_nothing() {
    let quota = Quota { devices: Some(2), memory_bytes: None };
    let owners = BTreeMap::from([("mallory".parse().unwrap(), quota)]);
    let quotas = Quotas { owners, ..Quotas::default() };
    let mut world = World::new(Rules { quotas, ..rules() }, vec![(server(0, 3), 0)]);
    beat(&mut world);
    wants(&mut world, "mallory", 1, None);
    wants(&mut world, "carol", 1, None);
    wants(&mut world, "mallory", 2, None);
    wants(&mut world, "eve", 1, None);
    assert!(has(&world, "eve") && world.held.len() == 3);
}

#[test]
fn servers_that_are_away_are_not_waited_for() {
    let mut world = world(&[2, 2]);
    world.servers[1].server.condition = Condition::Draining;
    beat(&mut world);
    wants(&mut world, "mallory", 4, None);
    wants(&mut world, "eve", 1, None);
    assert!(has(&world, "eve") && !has(&world, "mallory"));
}

/// Somebody who comes meanwhile.
#[derive(Clone, Debug)]
struct Comer {
    /// After so many seconds.
    after: u32,
    devices: u32,
    usage: Use,
    for_seconds: Option<u32>,
    /// Whether it gives back what it has when the next one comes.
    is_brief: bool,
}

fn some_comer() -> impl Strategy<Value = Comer> {
    let half = Use::Shared(Share::try_from(50).unwrap());
    let usage = prop_oneof![2 => Just(Use::Exclusive), 1 => Just(half)];
    let lasts = prop_oneof![
        Just(None),
        prop::sample::select(vec![5, 29, 61, 130, 200, 400]).prop_map(|of| Some(of * MINUTE)),
    ];
    (0..40 * MINUTE, 1..3_u32, usage, lasts, any::<bool>()).prop_map(
        |(after, devices, usage, for_seconds, is_brief)| Comer {
            after,
            devices,
            usage,
            for_seconds,
            is_brief,
        },
    )
}

fn comes(world: &mut World, owner: &str, comer: &Comer) {
    let request = request(owner, comer.devices, comer.usage, u32::MAX);
    let ask = Ask { for_seconds: comer.for_seconds, ..ask(request) };
    // What the pool has not is refused.
    if let Ok(ticket) = world.desk.ask(ask, asker(owner), world.now) {
        world.settle();
        world.tickets.push((ticket, owner.parse().unwrap()));
        world.collect();
    }
}

/// When the last lease ends that there is.
fn last_end(world: &World) -> Timestamp {
    let ends = world.desk.view("").leases.into_iter().map(|lease| lease.renewable_until);
    ends.max().unwrap_or(world.now)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// However many come and whatever they say: who waits for all devices has them a minute after
    /// the last lease's end that was there when it came, and meanwhile nothing is unused for which
    /// somebody waits, but for the first half an hour and the last hour.
    #[test]
    fn the_large_one_is_served_in_time_and_the_small_ones_meanwhile(
        servers in prop::collection::vec(1..3_usize, 1..3),
        before in prop::collection::vec(some_comer(), 1..4),
        after in prop::collection::vec(some_comer(), 0..20),
    ) {
        let mut world = world(&servers);
        for (number, comer) in before.iter().enumerate() {
            comes(&mut world, &format!("early{number}"), comer);
        }
        for (ticket, _) in std::mem::take(&mut world.tickets) {
            world.desk.withdraw(ticket, world.now);
        }
        let (came, end) = (world.now, last_end(&world));
        let all = u32::try_from(servers.iter().sum::<usize>()).unwrap();
        wants(&mut world, "large", all, None);
        let mut comers: BTreeMap<String, Comer> = BTreeMap::new();
        let mut next_at = came;
        let mut coming = after.iter().enumerate().peekable();
        while !has(&world, "large") {
            prop_assert!(world.now <= end + SignedDuration::from_secs(60), "it waits still");
            while let Some((number, comer)) = coming.next_if(|(_, comer)| {
                next_at + SignedDuration::from_secs(comer.after.into()) <= world.now
            }) {
                next_at += SignedDuration::from_secs(comer.after.into());
                let owner = format!("owner{number}");
                for (other, of) in &comers {

                    if of.is_brief && has(&world, other) {
                        let number = world.held.iter().find(|of| of.owner.as_str() == other);
                        let number = number.unwrap().number;
                        let _ = world.desk.end(number, "it was given back", world.now);
                    }
                }
                comes(&mut world, &owner, comer);
                comers.insert(owner, comer.clone());
            }
            // What ends now is unused in a moment.
            go_on(&mut world, 30);
            let view = world.desk.view("");
            let devices = view.servers.iter().flat_map(|server| &server.devices);
            let unused = devices.filter(|device| device.free_percent == 100).count();
            for waiting in view.queue.iter().filter(|of| of.owner.as_str() != "large") {
                let comer = &comers[waiting.owner.as_str()];
                let is_first_half_hour = world.now < came + SignedDuration::from_mins(31);
                let passes = match comer.for_seconds {
                    Some(seconds) => {
                        let gone = world.now + SignedDuration::from_secs(seconds.into());
                        let limit = came + SignedDuration::from_mins(30);
                        gone < if is_first_half_hour { end.min(limit) } else { end }
                    }
                    None => !is_first_half_hour
                        && end.duration_since(world.now) > SignedDuration::from_mins(61),
                };
                prop_assert!(
                    !passes || comer.devices as usize > unused,
                    "{comer:?} waits, and {unused} are unused"
                );
            }
        }
    }
}
