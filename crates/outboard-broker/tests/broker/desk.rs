//! What the desk promises, whatever happens to whom and when.

use crate::world::{World, ask, asker, request, server, speaker};
use jiff::{SignedDuration, Timestamp};
use outboard_broker::desk::{Aimed, Asker, Kind, Outcome, Rules, Stands};
use outboard_pool::api::Ask;
use outboard_pool::state::{Quota, Quotas};
use outboard_pool::words::{Condition, LeaseNumber, Named, Purpose, Share, Use};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn shared(percent: u8) -> Use {
    Use::Shared(Share::try_from(percent).unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    Ask { owner: u8, devices: u32, usage: Use, wait: u32 },
    Beat { at: usize, is_lost: bool },
    BeatAll,
    Start { held: usize, at: usize },
    Stop { at: usize },
    End { held: usize },
    Renew { held: usize },
    Pass(i64),
    RestartServer(usize),
    RestartBroker,
    Drain(usize),
    LoseDevice(usize),
    Lie { in_use: Vec<u64>, gone: Vec<u64>, sessions: u32, ready: bool },
}

fn some_step() -> impl Strategy<Value = Step> {
    let usage = prop_oneof![Just(Use::Exclusive), Just(shared(50)), Just(shared(30))];
    let wait = prop_oneof![Just(0_u32), Just(5), Just(100)];
    prop_oneof![
        6 => (0..3_u8, 1..4_u32, usage, wait)
            .prop_map(|(owner, devices, usage, wait)| Step::Ask { owner, devices, usage, wait }),
        4 => (0..3_usize, prop::bool::weighted(0.3))
            .prop_map(|(at, is_lost)| Step::Beat { at, is_lost }),
        6 => Just(Step::BeatAll),
        6 => (any::<usize>(), 0..3_usize).prop_map(|(held, at)| Step::Start { held, at }),
        2 => (0..3_usize).prop_map(|at| Step::Stop { at }),
        2 => any::<usize>().prop_map(|held| Step::End { held }),
        2 => any::<usize>().prop_map(|held| Step::Renew { held }),
        5 => prop_oneof![Just(1_i64), Just(4), Just(11), Just(31), Just(61), Just(130)]
            .prop_map(Step::Pass),
        1 => (0..3_usize).prop_map(Step::RestartServer),
        1 => Just(Step::RestartBroker),
        1 => (0..3_usize).prop_map(Step::Drain),
        1 => (0..3_usize).prop_map(Step::LoseDevice),
        3 => (
            prop::collection::vec(0..12_u64, 0..4),
            prop::collection::vec(0..12_u64, 0..4),
            prop_oneof![Just(0_u32), Just(1), Just(u32::MAX)],
            any::<bool>(),
        )
            .prop_map(|(in_use, gone, sessions, ready)| Step::Lie { in_use, gone, sessions, ready }),
    ]
}

fn play(world: &mut World, step: &Step) {
    let count = world.servers.len();
    let held = |world: &World, at: usize| {
        world.held.get(at % world.held.len().max(1)).map(|lease| lease.number)
    };
    match *step {
        Step::Ask { owner, devices, usage, wait } => {
            let _ = world.ask(request(&format!("owner{owner}"), devices, usage, wait));
        }
        Step::Beat { at, is_lost } => {
            let _ = world.beat(at % count, is_lost);
        }
        Step::BeatAll => (0..count).for_each(|at| {
            let _ = world.beat(at, false);
        }),
        Step::Start { held, at } => world.start(held, at % count),
        Step::Stop { at } => {
            world.servers[at % count].sessions.pop_first();
        }
        Step::End { held: at } => {
            if let Some(number) = held(world, at) {
                let _ = world.desk.end(number, "it was given back", world.now);
                world.settle();
            }
        }
        Step::Renew { held: at } => {
            if let Some(number) = held(world, at)
                && world.desk.renew(number, world.now).is_ok()
            {
                world.settle();
                world.held.extend(world.desk.lease(number).cloned());
            }
        }
        Step::Pass(seconds) => world.pass(seconds),
        Step::RestartServer(at) => world.restart_server(at % count),
        Step::RestartBroker => world.restart_broker(),
        Step::Drain(at) => {
            let server = &mut world.servers[at % count].server;
            server.condition = match server.condition {
                Condition::Ready => Condition::Draining,
                _ => Condition::Ready,
            };
        }
        Step::Lie { ref in_use, ref gone, sessions, ready } => {
            world.lie(in_use, gone, sessions, ready);
        }
        Step::LoseDevice(at) => {
            // A program that has it cannot go on, nor one that comes.
            let played = &mut world.servers[at % count];
            if played.server.devices.len() > 1 {
                played.server.devices.pop();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// With lost answers, servers and brokers that are started anew, clocks half a minute apart,
    /// and a server that says what it likes: nobody is given what somebody else can still use.
    #[test]
    fn nothing_is_given_twice(
        clocks in prop::collection::vec(prop::sample::select(vec![-30_i64, -5, 0, 7, 30]), 3),
        steps in prop::collection::vec(some_step(), 1..80),
    ) {
        let servers = clocks.iter().enumerate().map(|(at, ahead)| (server(at, 2), *ahead));
        let mut world = World::new(Rules::default(), servers.collect());
        for step in &steps {
            play(&mut world, step);
            prop_assert_eq!(world.check(), Ok(()), "after {:?}", step);
        }
        // Whatever has happened, all is free again some time after everybody has left.
        world.held.clear();
        for played in &mut world.servers {
            played.sessions.clear();
            played.server.condition = Condition::Ready;
        }
        world.tickets.clear();
        for _ in 0..20 {
            world.pass(10);
            for at in 0..3 {
                prop_assert_eq!(world.beat(at, false), Ok(()));
            }
        }
        world.lie(&[], &[], 0, true);
        let view = world.desk.view("0.1.0");
        prop_assert!(view.leases.is_empty() && view.queue.is_empty(), "{:?}", view);
        for device in view.servers.iter().flat_map(|server| &server.devices) {
            prop_assert_eq!((device.free_bytes, device.free_percent), (device.memory_bytes, 100));
        }
        prop_assert!(view.servers.iter().all(|server| server.condition == Condition::Ready));
    }
}

fn two_devices() -> World {
    let mut world = World::new(Rules::default(), vec![(server(0, 2), 0)]);
    world.beat(0, false).unwrap();
    world
}

fn because(world: &mut World, ticket: u64) -> (u32, String) {
    match world.desk.stands(ticket, world.now) {
        Ok(Stands::Waiting { place, because, .. }) => (place, because),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_comes_first_is_served_first_and_nobody_overtakes() {
    let mut world = two_devices();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    assert_eq!(world.held.len(), 1);
    // One is free, and the first who waits wants two.
    world.ask(request("bob", 2, Use::Exclusive, 600)).unwrap();
    world.ask(request("eve", 1, Use::Exclusive, 600)).unwrap();
    assert_eq!((world.held.len(), world.tickets.len()), (1, 2));
    let (first, second) = (world.tickets[0].0, world.tickets[1].0);
    assert_eq!(because(&mut world, first), (1, "1 of the 2 devices are free".into()));
    let (place, why) = because(&mut world, second);
    assert_eq!(place, 2);
    assert!(why.contains("a request that came before"), "{why}");
    let ada = world.held[0].number;
    world.desk.end(ada, "it was given back", world.now).unwrap();
    world.beat(0, false).unwrap();
    assert_eq!(world.held.len(), 1, "the server has not said yet that it refuses the lease");
    world.beat(0, false).unwrap();
    assert_eq!(world.held[1].owner.as_str(), "bob");
    assert_eq!(world.tickets.len(), 1);
    let bob = world.held[1].number;
    world.desk.end(bob, "it was given back", world.now).unwrap();
    world.beat(0, false).unwrap();
    world.beat(0, false).unwrap();
    assert_eq!(world.held[2].owner.as_str(), "eve");
    assert_eq!(world.held.iter().map(|lease| lease.number.0).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn who_waits_for_one_kind_keeps_no_other_from_others() {
    let mut world = World::new(Rules::default(), vec![(server(0, 1), 0), (server(1, 1), 0)]);
    (0..2).for_each(|at| world.beat(at, false).unwrap());
    let of = |owner: &str, model: Option<&str>| {
        let mut request = request(owner, 1, Use::Exclusive, 600);
        request.model = model.map(Into::into);
        request
    };
    world.ask(of("ada", Some("H100"))).unwrap();
    world.ask(of("bob", Some("H100"))).unwrap();
    assert_eq!((world.held.len(), world.tickets.len()), (1, 1));
    // Any will do, and the other kind is free.
    world.ask(of("eve", None)).unwrap();
    assert_eq!(world.held[1].devices[0].server.as_str(), "gpu0");
    world.ask(of("zoe", None)).unwrap();
    let zoe = world.tickets[1].0;
    assert_eq!(because(&mut world, zoe).0, 2);
    // What becomes free goes to whoever waits for it and came first.
    let ada = world.held[0].number;
    world.desk.end(ada, "it was given back", world.now).unwrap();
    world.beat(1, false).unwrap();
    world.beat(1, false).unwrap();
    assert_eq!(world.held[2].owner.as_str(), "bob");
}

#[test]
fn who_waits_for_a_quota_keeps_nobody_back() {
    let quota = Quota { devices: Some(1), memory_bytes: None };
    let quotas =
        Quotas { owners: BTreeMap::from([("ada".parse().unwrap(), quota)]), ..Quotas::default() };
    let mut world = World::new(Rules { quotas, ..Rules::default() }, vec![(server(0, 2), 0)]);
    world.beat(0, false).unwrap();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    let ada = world.tickets[0].0;
    assert!(because(&mut world, ada).1.contains("its quota is 1 device"));
    world.ask(request("bob", 1, Use::Exclusive, 60)).unwrap();
    assert_eq!(world.held.len(), 2);
    // More than the quota at once can never be had.
    let no = world.ask(request("ada", 2, Use::Exclusive, 60)).unwrap_err();
    assert_eq!(no.kind, Kind::Unavailable);
    assert!(no.sentence.contains("quota"), "{no}");
}

#[test]
fn what_an_idle_pool_has_not_is_refused_at_once() {
    let mut world = two_devices();
    let no = world.ask(request("ada", 3, Use::Exclusive, 60)).unwrap_err();
    assert_eq!(
        no.sentence,
        "the pool could not give that if nothing were in use: 2 of the 3 devices are free"
    );
    let mut model = request("ada", 1, Use::Exclusive, 60);
    model.model = Some("B200".into());
    assert!(world.ask(model).unwrap_err().sentence.contains("no device of that model"));
    let mut empty = World::new(Rules::default(), Vec::new());
    let no = empty.ask(request("ada", 1, Use::Exclusive, 60)).unwrap_err();
    assert!(no.sentence.contains("the pool has no devices"), "{no}");
}

#[test]
fn nobody_waits_longer_than_asked_nor_without_asking() {
    let mut world = two_devices();
    world.ask(request("ada", 2, Use::Exclusive, 60)).unwrap();
    world.servers[0].sessions.insert(LeaseNumber(1));
    let no = world.ask(request("bob", 1, Use::Exclusive, 0)).unwrap_err();
    assert!(no.sentence.contains("no device of that kind is unused"), "{no}");
    assert!(world.tickets.is_empty() && world.desk.waiting() == 0);

    world.ask(request("bob", 1, Use::Exclusive, 5)).unwrap();
    let bob = world.tickets[0].0;
    (0..5).for_each(|_| world.pass(1));
    let stands = world.desk.stands(bob, world.now).unwrap();
    let Stands::Settled(outcome) = stands else { panic!("{stands:?}") };
    assert!(format!("{outcome:?}").contains("nothing was free within 5 s"), "{outcome:?}");

    // Nobody asks after this one.
    let asked = ask(request("eve", 1, Use::Exclusive, 600));
    let ticket = world.desk.ask(asked, asker("eve"), world.now);
    assert_eq!(world.desk.waiting(), 1);
    world.pass(11);
    assert_eq!(world.desk.waiting(), 0);
    let no = world.desk.stands(ticket.unwrap(), world.now).unwrap_err();
    assert_eq!(no.kind, Kind::NotFound);
}

fn purpose() -> Purpose {
    "slurm.cluster.7".parse().unwrap()
}

/// For `slurm`, in somebody's name.
fn for_purpose(owner: &str, devices: u32) -> Ask {
    Ask { purpose: Some(purpose()), ..ask(request(owner, devices, Use::Exclusive, 60)) }
}

#[test]
fn who_asks_again_for_a_purpose_gets_the_same() {
    let mut world = two_devices();
    world.ask(request("ada", 2, Use::Exclusive, 60)).unwrap();
    let (slurm, name) = (asker("slurm"), "slurm".parse().unwrap());
    let ticket = world.desk.ask(for_purpose("bob", 1), slurm.clone(), world.now).unwrap();
    assert_eq!(world.desk.ask(for_purpose("bob", 1), slurm.clone(), world.now), Ok(ticket));
    assert_eq!(world.desk.with_purpose(&name, &purpose()), Some(Aimed::Waits(ticket)));
    let whose = world.desk.whose_ticket(ticket).unwrap();
    assert_eq!((whose.owner.as_str(), whose.asked_by.as_str()), ("bob", "slurm"));

    // Another asker's purpose of that name is another one; it waits behind.
    let other = world.desk.ask(for_purpose("bob", 1), asker("bob"), world.now).unwrap();
    assert_ne!(other, ticket);
    world.desk.withdraw(other, world.now);
    assert_eq!(world.desk.with_purpose(&"bob".parse().unwrap(), &purpose()), None);

    world.desk.end(LeaseNumber(1), "", world.now).unwrap();
    world.beat(0, false).unwrap();
    world.beat(0, false).unwrap();
    world.pass(1);
    let lease = LeaseNumber(2);
    assert_eq!(world.desk.with_purpose(&name, &purpose()), Some(Aimed::Has(lease)));
    let granted = Ok(Stands::Settled(Outcome::Granted(lease)));
    let again = |world: &mut World| {
        let ticket = world.desk.ask(for_purpose("bob", 1), asker("slurm"), world.now).unwrap();
        world.desk.stands(ticket, world.now)
    };
    assert_eq!(again(&mut world), granted);
    world.restart_broker();
    assert_eq!(again(&mut world), granted);

    let stranger = Ask { client_key: "cd".repeat(32).parse().unwrap(), ..for_purpose("bob", 1) };
    let no = world.desk.ask(stranger, asker("slurm"), world.now).unwrap_err();
    assert!(no.sentence.contains("bound to another key"), "{no}");
    world.desk.end(lease, "", world.now).unwrap();
    assert_eq!(world.desk.with_purpose(&name, &purpose()), None);
}

#[test]
fn a_lease_may_live_as_long_as_a_job() {
    let mut world = two_devices();
    world.rules.longest = SignedDuration::from_hours(1);
    world.restart_broker();
    world.beat(0, false).unwrap();
    let begin = world.now;
    let ends = |world: &mut World, asked: Ask| -> (Timestamp, Timestamp) {
        let ticket = world.desk.ask(asked, asker("slurm"), world.now).unwrap();
        let Ok(Stands::Settled(Outcome::Granted(number))) = world.desk.stands(ticket, world.now)
        else {
            panic!("it waits");
        };
        let lease = world.desk.lease(number).unwrap();
        (lease.expires, lease.renewable_until)
    };
    let job = Ask { life_seconds: Some(600), for_seconds: Some(600), ..for_purpose("ada", 1) };
    let end = begin + SignedDuration::from_secs(600);
    assert_eq!(ends(&mut world, job), (end, end));
    let endless = ask(request("bob", 1, Use::Exclusive, 0));
    let hour = begin + SignedDuration::from_hours(1);
    assert_eq!(ends(&mut world, Ask { life_seconds: Some(u32::MAX), ..endless }), (hour, hour));
    // Nobody uses or renews it, and it is there until its end.
    for _ in 0..59 {
        world.pass(10);
        world.beat(0, false).unwrap();
    }
    assert!(world.desk.lease(LeaseNumber(1)).is_some());
    world.pass(11);
    assert!(world.desk.lease(LeaseNumber(1)).is_none());
}

#[test]
fn a_lease_is_prolonged_as_its_job_is() {
    let mut world = two_devices();
    world.rules.longest = SignedDuration::from_hours(1);
    world.restart_broker();
    world.beat(0, false).unwrap();
    let begin = world.now;
    let after = |seconds: i64| begin + SignedDuration::from_secs(seconds);
    let job = Ask { life_seconds: Some(60), for_seconds: Some(60), ..for_purpose("ada", 1) };
    world.desk.ask(job, asker("slurm"), world.now).unwrap();
    let lease = LeaseNumber(1);
    let ends = |world: &World| world.desk.lease(lease).map(|lease| lease.expires);
    assert_eq!(ends(&world), Some(after(60)));
    // What the server hears of leases that it does not use.
    let heard = |world: &mut World| {
        world.servers[0].expires.clear();
        world.beat(0, false).unwrap();
        let heard = world.servers[0].expires.iter();
        heard.map(|(number, (_, expires))| (*number, *expires)).collect::<Vec<_>>()
    };
    assert!(heard(&mut world).is_empty());
    world.pass(30);
    world.desk.prolong(lease, 20, world.now).unwrap();
    assert_eq!(ends(&world), Some(after(60)), "it becomes no shorter");
    world.desk.prolong(lease, 570, world.now).unwrap();
    assert_eq!(ends(&world), Some(after(600)));
    // A server or a broker that is started anew hears of it, too.
    assert_eq!(heard(&mut world), [(lease, after(600))]);
    world.restart_broker();
    assert_eq!(heard(&mut world), [(lease, after(600))]);
    world.desk.prolong(lease, u32::MAX, world.now).unwrap();
    assert_eq!(ends(&world), Some(after(3600)), "the broker lets none live longer");
    world.desk.end(lease, "", world.now).unwrap();
    let no = world.desk.prolong(lease, 600, world.now).unwrap_err();
    assert_eq!(no.kind, Kind::Unavailable);
    assert!(heard(&mut world).is_empty());
    let no = world.desk.prolong(LeaseNumber(9), 600, world.now).unwrap_err();
    assert_eq!(no.kind, Kind::NotFound);
}

#[test]
fn devices_that_are_named_are_not_waited_for() {
    let mut world = two_devices();
    let named = |device: &str, wait: u32| {
        let named = Named { server: "gpu0".parse().unwrap(), device: device.parse().unwrap() };
        let mut asked = ask(request("ada", 1, Use::Exclusive, wait));
        asked.request.only.push(named);
        asked
    };
    let no = world.desk.ask(named("GPU-0-1", 5), asker("kube"), world.now).unwrap_err();
    assert_eq!(no.kind, Kind::Malformed);
    world.desk.ask(named("GPU-0-1", 0), asker("kube"), world.now).unwrap();
    let device = &world.desk.lease(LeaseNumber(1)).unwrap().devices[0].device;
    assert_eq!(device.as_str(), "GPU-0-1");
    for (device, reason) in [("GPU-0-1", "is not free"), ("GPU-0-7", "has no device GPU-0-7")] {
        let no = world.desk.ask(named(device, 0), asker("kube"), world.now).unwrap_err();
        assert!(no.kind == Kind::Unavailable && no.sentence.contains(reason), "{no}");
    }
    // A refusal keeps nothing from others.
    world.ask(request("bob", 1, Use::Exclusive, 0)).unwrap();
}

#[test]
fn a_silent_server_gets_nothing_and_its_unused_leases_end() {
    let mut world = two_devices();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    world.pass(11);
    world.ask(request("bob", 1, Use::Exclusive, 600)).unwrap();
    let bob = world.tickets[0].0;
    assert!(because(&mut world, bob).1.contains("draining or silent"));
    // 60 s of life, and 60 s in which a server with a wrong clock could believe it.
    (0..6).for_each(|_| world.pass(8));
    assert_eq!(world.desk.view("").leases[0].over, None);
    (0..8).for_each(|_| world.pass(8));
    assert!(world.desk.view("").leases.is_empty());
    world.beat(0, false).unwrap();
    assert_eq!(world.held.last().unwrap().owner.as_str(), "bob");
}

#[test]
fn a_lease_in_use_is_renewed_until_it_may_not() {
    let mut world = two_devices();
    let mut limited = ask(request("ada", 1, Use::Exclusive, 60));
    limited.for_seconds = Some(100);
    let ticket = world.desk.ask(limited, asker("ada"), world.now).unwrap();
    world.tickets.push((ticket, "ada".parse().unwrap()));
    world.collect();
    world.start(0, 0);
    for second in 0..100 {
        assert_eq!(world.servers[0].sessions.len(), 1, "after {second} s");
        world.pass(1);
        world.beat(0, false).unwrap();
    }
    world.beat(0, false).unwrap();
    assert!(world.servers[0].sessions.is_empty(), "it was for 100 s");
    world.beat(0, false).unwrap();
    let why = world.desk.why(LeaseNumber(1), world.now).unwrap().sentences.join(" ");
    for part in ["ada (group everybody) asked", "chose GPU-0-0 of gpu0", "not for longer", "free"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn a_server_that_is_gone_keeps_no_devices_of_other_servers() {
    let mut world = World::new(Rules::default(), vec![(server(0, 1), 0), (server(2, 1), 0)]);
    (0..2).for_each(|at| world.beat(at, false).unwrap());
    world.ask(request("ada", 2, Use::Exclusive, 60)).unwrap();
    world.ask(request("bob", 1, Use::Exclusive, 600)).unwrap();
    world.desk.end(LeaseNumber(1), "", world.now).unwrap();
    // The second server says no more.
    world.beat(0, false).unwrap();
    world.beat(0, false).unwrap();
    let devices = &world.held.last().unwrap().devices;
    assert_eq!((devices.len(), devices[0].server.as_str()), (1, "gpu0"));
    let leases =
        |world: &World, at: usize| world.desk.view("").servers[at].devices[0].leases.clone();
    let both = (vec![LeaseNumber(2)], vec![LeaseNumber(1)]);
    assert_eq!((leases(&world, 0), leases(&world, 1)), both);
    let has = |owner: &outboard_pool::api::OwnerView| owner.devices;
    assert_eq!(world.desk.view("").owners.iter().map(has).collect::<Vec<_>>(), [1, 1]);
    world.restart_broker();
    assert_eq!((leases(&world, 0), leases(&world, 1)), both);
    assert_eq!(world.desk.view("").servers[0].devices[0].free_percent, 0);
    // No server can believe the first lease any more.
    (0..20).for_each(|_| world.pass(8));
    assert!(leases(&world, 1).is_empty());
}

#[test]
fn an_ended_lease_ends_on_its_server_with_the_next_beat() {
    let mut world = two_devices();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    world.start(0, 0);
    world.beat(0, false).unwrap();
    assert_eq!(world.servers[0].sessions.len(), 1);
    world.desk.end(LeaseNumber(1), "ada gave it back", world.now).unwrap();
    world.beat(0, false).unwrap();
    assert!(world.servers[0].sessions.is_empty());
    world.start(0, 0);
    assert!(world.servers[0].sessions.is_empty(), "it is refused");
    // Also by a server that was started anew, as long as the lease could be believed.
    world.beat(0, false).unwrap();
    world.restart_server(0);
    world.beat(0, false).unwrap();
    world.start(0, 0);
    assert!(world.servers[0].sessions.is_empty(), "it is refused still");
}

#[test]
fn a_restart_loses_no_lease_and_repeats_no_number() {
    let mut world = two_devices();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    world.start(0, 0);
    // The broker is away for a day; the server goes on.
    world.restart_broker();
    world.servers[0].sessions.insert(LeaseNumber(1));
    world.now += jiff::SignedDuration::from_hours(24);
    world.restart_broker();
    world.desk.tick(world.now);
    world.beat(0, false).unwrap();
    let view = world.desk.view("");
    assert_eq!((view.leases.len(), view.leases[0].over.as_ref()), (1, None));
    assert!(view.leases[0].expires > world.now, "it was in use, and so it was renewed");
    world.ask(request("bob", 1, Use::Exclusive, 60)).unwrap();
    assert_eq!(world.held[1].number, LeaseNumber(2));
    assert_ne!(world.held[1].devices[0].device, world.held[0].devices[0].device);
}

#[test]
fn a_name_is_the_owners_who_had_it_first() {
    let mut world = two_devices();
    let beat = outboard_pool::api::Beat {
        server: server(0, 2),
        address: "evil:1".into(),
        fingerprint: None,
        release: String::new(),
        in_use: Vec::new(),
        gone: Vec::new(),
        start: None,
    };
    let no = world.desk.beat(&speaker("mallory"), &beat, world.now).unwrap_err();
    assert_eq!(no.kind, Kind::Forbidden);
    assert!(no.sentence.contains("another owner"), "{no}");
}

#[test]
fn a_revoked_token_loses_its_leases_and_its_place() {
    let mut world = two_devices();
    let by = |name: &str, token: &str| Asker { token: Some(token.into()), ..asker(name) };
    for (owner, name) in [("ada", "t1"), ("bob", "t2")] {
        let asked = ask(request(owner, 1, Use::Exclusive, 60));
        world.desk.ask(asked, by(owner, name), world.now).unwrap();
    }
    let asked = ask(request("ada", 1, Use::Exclusive, 60));
    world.desk.ask(asked, by("ada", "t1"), world.now).unwrap();
    assert_eq!(world.desk.waiting(), 1);
    world.desk.end_those_of(|name| name == "t1", world.now);
    assert_eq!(world.desk.waiting(), 0);
    assert!(
        world.desk.lease(LeaseNumber(1)).is_none() && world.desk.lease(LeaseNumber(2)).is_some()
    );
}

#[test]
fn the_queue_has_room_for_ten_thousand_and_for_others_than_one() {
    let mut world = two_devices();
    world.ask(request("ada", 2, Use::Exclusive, 60)).unwrap();
    let mut refused = 0;
    let begin = std::time::Instant::now();
    for number in 0..10_000 {
        let owner = if number % 2 == 0 { "crowd".into() } else { format!("owner{number}") };
        let asked = ask(request(&owner, 1, Use::Exclusive, 600));
        match world.desk.ask(asked, asker(&owner), world.now) {
            Ok(_) => {}
            Err(no) => {
                assert_eq!((no.kind, owner.as_str()), (Kind::Busy, "crowd"));
                refused += 1;
            }
        }
    }
    // Of the 5,000 of the crowd 4,096 have a place; all of the others have one.
    assert_eq!((world.desk.waiting(), refused), (5000 + 4096, 5000 - 4096));
    let took = begin.elapsed();
    assert!(took.as_secs() < 20, "10,000 requests took {took:?}");
}

#[test]
fn use_is_counted_by_owner_group_model_and_day() {
    let mut world = two_devices();
    world.ask(request("ada", 1, shared(50), 60)).unwrap();
    world.start(0, 0);
    for _ in 0..100 {
        world.pass(1);
        world.beat(0, false).unwrap();
    }
    let usage = world.desk.usage(None);
    assert_eq!(usage.len(), 1);
    let of = (usage[0].owner.as_str(), usage[0].group.as_str(), usage[0].model.as_str());
    assert_eq!(of, ("ada", "everybody", "L4"));
    // Half a device with 10 GiB for a hundred seconds.
    assert_eq!((usage[0].device_seconds, usage[0].gib_seconds), (50, 1000));
    world.desk.keep_usage(world.now);
    world.settle();
    world.restart_broker();
    assert_eq!(world.desk.usage(None), usage);
}

#[test]
fn how_the_pool_was_used_is_remembered() {
    let mut world = two_devices();
    world.ask(request("ada", 1, shared(50), 60)).unwrap();
    world.start(0, 0);
    for _ in 0..310 {
        world.pass(1);
        world.beat(0, false).unwrap();
    }
    let view = world.desk.history(world.now, 60, 6);
    let point = view.points[3].expect("the broker ran");
    assert_eq!((point.devices, point.leased, point.waiting), (2.0, 0.5, 0));
    world.settle();
    world.restart_broker();
    let view = world.desk.history(world.now, 3600, 12);
    let kept: Vec<_> = view.points.iter().flatten().collect();
    assert!(!kept.is_empty() && kept[0].leased > 0.4, "{view:?}");
    // A server that says nothing has no devices that count.
    for _ in 0..30 {
        world.pass(1);
    }
    let view = world.desk.history(world.now, 10, 1);
    assert_eq!(view.points[0].expect("the broker ran").devices, 0.0);
}
