//! What placement promises, on pools and requests that nobody thought of.

use jiff::Timestamp;
use outboard_pool::placement::{Foreseen, Placement, Policy, Refusal, foresee};
use outboard_pool::state::{Pool, Quota, Quotas, Usage};
use outboard_pool::words::{
    Capability, Condition, Device, DeviceUuid, Granted, Health, Label, LeaseNumber, Named, Request,
    Server, ServerName, Servers, Share, Use,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const GIB: u64 = 1 << 30;

fn label(value: &str) -> Label {
    Label { key: "rack".parse().expect("a name"), value: value.parse().expect("a name") }
}

fn device(number: usize, (kind, well): (usize, bool), neighbours: &[DeviceUuid]) -> Device {
    let (model, memory, major) = [("L4", 24, 8), ("A100", 40, 8), ("H100", 80, 9)][kind];
    Device {
        uuid: format!("GPU-{number}").parse().expect("a name"),
        model: model.into(),
        memory_bytes: memory * GIB,
        capability: Capability { major, minor: 0 },
        nvlink: neighbours.iter().cloned().collect(),
        load_percent: 0,
        health: if well { Health::Well } else { Health::Ill },
    }
}

fn name(number: usize) -> ServerName {
    format!("gpu{number}").parse().expect("a name")
}

fn server(number: usize, condition: Condition, rack: &str, devices: Vec<Device>) -> Server {
    let label = label(rack);
    Server {
        name: name(number),
        driver: "570.86.10".into(),
        labels: BTreeMap::from([(label.key, label.value)]),
        condition,
        devices,
    }
}

fn some_servers() -> impl Strategy<Value = Vec<Server>> {
    let condition = prop_oneof![
        4 => Just(Condition::Ready),
        1 => Just(Condition::Draining),
        1 => Just(Condition::Silent),
    ];
    let devices = prop::collection::vec((0..3_usize, prop::bool::weighted(0.9)), 0..5);
    let one = (condition, prop::sample::select(vec!["r1", "r2"]), devices, any::<bool>());
    prop::collection::vec(one, 0..5).prop_map(|all| {
        let described = |(number, (condition, rack, devices, linked))| {
            let devices: Vec<(usize, bool)> = devices;
            let all: Vec<DeviceUuid> = (0..devices.len())
                .filter(|_| linked)
                .map(|number| format!("GPU-{number}").parse().expect("a name"))
                .collect();
            let devices = devices.into_iter().enumerate();
            let devices = devices.map(|(number, kind)| device(number, kind, &all)).collect();
            server(number, condition, rack, devices)
        };
        all.into_iter().enumerate().map(described).collect()
    })
}

fn asked_by(owner: &str, group: &str, devices: u32) -> Request {
    Request::new(owner.parse().expect("a name"), group.parse().expect("a name"), devices)
}

fn some_request() -> impl Strategy<Value = Request> {
    let usage = prop_oneof![
        Just(Use::Exclusive),
        // Few different ones, so that what is left often is exactly what is asked for.
        prop::sample::select(vec![1, 25, 50, 75, 99, 100]).prop_map(shared),
    ];
    let servers = prop::sample::select(vec![Servers::Any, Servers::Same, Servers::Distinct]);
    let model = prop::sample::select(vec![None, None, Some("a100"), Some("H1"), Some("B200")]);
    let near = prop::sample::select(vec![None, Some("r1"), Some("r3")]);
    let who = prop::sample::select(vec![("ada", "x"), ("bob", "x"), ("eve", "y")]);
    let capability = prop::sample::select(vec![None, None, Some(9), Some(10)]);
    let gib = prop::sample::select(vec![1, 8, 16, 24, 32, 40, 80, 81]);
    // Most requests avoid none.
    let avoid = prop::sample::select(vec![vec![], vec![], vec![0], vec![1, 2], vec![0, 99]]);
    (who, 1..5_u32, gib, usage, servers, model, (near, avoid), capability).prop_map(
        |((owner, group), devices, gib, usage, servers, model, (near, avoid), major)| Request {
            avoid: avoid.into_iter().map(name).collect(),
            memory_bytes: gib * GIB,
            usage,
            model: model.map(Into::into),
            capability: major.map(|major| Capability { major, minor: 0 }),
            servers,
            near: near.map(label),
            ..asked_by(owner, group, devices)
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Ask(Request, Policy),
    /// As the request says, but of these devices.
    AskFor(Request, Vec<prop::sample::Index>, Policy),
    GiveBack(prop::sample::Index),
    Turn(prop::sample::Index, Condition),
    /// Gives its devices only if no others will do, or no longer so.
    Last(prop::sample::Index, bool),
}

fn some_steps() -> impl Strategy<Value = Vec<Step>> {
    let policy = || prop::sample::select(Policy::ALL.to_vec());
    let condition = prop::sample::select(vec![Condition::Ready, Condition::Draining]);
    let step = prop_oneof![
        6 => (some_request(), policy()).prop_map(|(request, policy)| Step::Ask(request, policy)),
        2 => (some_request(), prop::collection::vec(any::<prop::sample::Index>(), 1..4), policy())
            .prop_map(|(request, devices, policy)| Step::AskFor(request, devices, policy)),
        2 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        1 => (any::<prop::sample::Index>(), condition).prop_map(|(at, to)| Step::Turn(at, to)),
        1 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(at, is)| Step::Last(at, is)),
    ];
    prop::collection::vec(step, 1..60)
}

fn quotas() -> Quotas {
    Quotas {
        owner: Quota { devices: Some(6), memory_bytes: Some(300 * GIB) },
        group: Quota { devices: Some(9), memory_bytes: Some(400 * GIB) },
        ..Quotas::default()
    }
}

/// What is granted, kept as simply as can be, to compare with.
#[derive(Default)]
struct Model {
    servers: Vec<Server>,
    last: BTreeSet<ServerName>,
    leases: Vec<(LeaseNumber, Request, Vec<Granted>)>,
}

impl Model {
    fn on(&self, server: &ServerName, device: &DeviceUuid) -> Vec<&Granted> {
        let all = self.leases.iter().flat_map(|(_, _, granted)| granted);
        all.filter(|one| one.server == *server && one.device == *device).collect()
    }

    fn check(&self, pool: &Pool) -> Result<(), TestCaseError> {
        for server in &self.servers {
            for (device, (bytes, percent)) in server.devices.iter().zip(pool.free(&server.name)) {
                let on = self.on(&server.name, &device.uuid);
                let memory: u64 = on.iter().map(|one| one.memory_bytes).sum();
                let shares: u32 = on.iter().map(|one| share(one.usage)).sum();
                prop_assert!(memory <= device.memory_bytes, "{} is over its memory", device.uuid);
                prop_assert!(shares <= 100, "{} is over its multiprocessors", device.uuid);
                let exclusive = on.iter().any(|one| one.usage == Use::Exclusive);
                prop_assert!(!exclusive || on.len() == 1, "{} is not exclusive", device.uuid);
                prop_assert_eq!(bytes, device.memory_bytes - memory);
                prop_assert_eq!(u32::from(percent), 100 - shares);
            }
        }
        for (_, request, _) in &self.leases {
            let (owner, group) = (
                self.usage(|of| of.owner == request.owner),
                self.usage(|of| of.group == request.group),
            );
            prop_assert!(pool.quotas().owner.allows(owner) && pool.quotas().group.allows(group));
            prop_assert_eq!(pool.usage_of_owner(&request.owner), owner);
            prop_assert_eq!(pool.usage_of_group(&request.group), group);
        }
        Ok(())
    }

    fn usage(&self, of: impl Fn(&Request) -> bool) -> Usage {
        let granted = self.leases.iter().filter(|(_, request, _)| of(request));
        let granted: Vec<&Granted> = granted.flat_map(|(_, _, granted)| granted).collect();
        Usage {
            devices: granted.len() as u64,
            memory_bytes: granted.iter().map(|one| one.memory_bytes).sum(),
        }
    }

    /// The same for some of the devices that there are, or for one that there is not.
    fn naming(&self, request: &Request, which: &[prop::sample::Index]) -> Request {
        let of = |server: &Server, device: &DeviceUuid| Named {
            server: server.name.clone(),
            device: device.clone(),
        };
        let there = |server: &Server| {
            server.devices.iter().map(|device| of(server, &device.uuid)).collect::<Vec<_>>()
        };
        let mut all: Vec<Named> = self.servers.iter().flat_map(there).collect();
        let stranger = "GPU-stranger".parse().expect("a name");
        all.extend(self.servers.first().map(|server| of(server, &stranger)));
        all.push(Named { server: "stranger".parse().expect("a name"), device: stranger });
        let only: BTreeSet<Named> = which.iter().map(|at| at.get(&all).clone()).collect();
        Request {
            devices: u32::try_from(only.len()).expect("they are few"),
            only: only.into_iter().collect(),
            model: None,
            capability: None,
            near: None,
            avoid: Vec::new(),
            servers: Servers::Any,
            ..request.clone()
        }
    }

    fn device(&self, named: &Named) -> Option<(&Server, &Device)> {
        let server = self.servers.iter().find(|server| server.name == named.server)?;
        let device = server.devices.iter().find(|device| device.uuid == named.device)?;
        Some((server, device))
    }

    fn is_kind(device: &Device, request: &Request) -> bool {
        let model = request.model.as_ref().map(|model| model.to_uppercase());
        model.is_none_or(|model| device.model.to_uppercase().contains(&model))
            && request.capability.is_none_or(|lowest| device.capability >= lowest)
    }

    fn fits(&self, server: &Server, device: &Device, request: &Request) -> bool {
        let on = self.on(&server.name, &device.uuid);
        let memory: u64 = on.iter().map(|one| one.memory_bytes).sum();
        let shares: u32 = on.iter().map(|one| share(one.usage)).sum();
        server.condition == Condition::Ready
            && !request.avoid.contains(&server.name)
            && device.health == Health::Well
            && Model::is_kind(device, request)
            && device.memory_bytes - memory >= request.memory_bytes
            && 100 - shares >= share(request.usage)
    }

    /// How many devices fit that stand together as wanted.
    fn most(&self, request: &Request) -> usize {
        let counts = self.servers.iter().map(|server| {
            server.devices.iter().filter(|device| self.fits(server, device, request)).count()
        });
        match request.servers {
            Servers::Any => counts.sum(),
            Servers::Same => counts.max().unwrap_or(0),
            Servers::Distinct => counts.filter(|count| *count > 0).count(),
        }
    }

    /// Asks, and takes what it gets.
    fn asks(
        &mut self,
        pool: &mut Pool,
        number: LeaseNumber,
        request: Request,
        policy: Policy,
    ) -> Result<(), TestCaseError> {
        let granted = match policy.place(pool, &request) {
            Err(refusal) => return self.refuses(&request, &refusal),
            Ok(granted) => granted,
        };
        self.answers(&request, &granted)?;
        let before = pool.clone();
        let (owner, group) = (&request.owner, &request.group);
        prop_assert_eq!(pool.grant(number, owner, group, granted.clone()), Ok(()));
        prop_assert!(*pool != before);
        let after = pool.clone();
        prop_assert!(pool.release(number));
        prop_assert_eq!(&*pool, &before, "what is given back was never taken");
        prop_assert_eq!(pool.grant(number, owner, group, granted.clone()), Ok(()));
        prop_assert_eq!(&*pool, &after);
        self.leases.push((number, request, granted));
        Ok(())
    }

    /// That the answer is what was asked for.
    fn answers(&self, request: &Request, granted: &[Granted]) -> Result<(), TestCaseError> {
        prop_assert_eq!(granted.len(), request.devices as usize);
        let devices: BTreeSet<_> = granted.iter().map(|one| (&one.server, &one.device)).collect();
        prop_assert_eq!(devices.len(), granted.len(), "a device is given once");
        let named = request.only.iter().map(|named| (&named.server, &named.device));
        prop_assert!(
            request.only.is_empty()
                || granted.iter().map(|one| (&one.server, &one.device)).eq(named)
        );
        let servers: BTreeSet<_> = granted.iter().map(|one| &one.server).collect();
        match request.servers {
            Servers::Any => {}
            Servers::Same => prop_assert_eq!(servers.len(), 1),
            Servers::Distinct => prop_assert_eq!(servers.len(), granted.len()),
        }
        let with_last = request.avoid.iter().chain(&self.last).cloned().collect();
        let without_last = Request { avoid: with_last, ..request.clone() };
        if request.only.is_empty() && self.most(&without_last) >= request.devices as usize {
            prop_assert!(servers.iter().all(|server| !self.last.contains(*server)));
        }
        for one in granted {
            let server = self.servers.iter().find(|server| server.name == one.server);
            let server = server.expect("the server is there");
            let device = server.devices.iter().find(|device| device.uuid == one.device);
            let device = device.expect("the device is there");
            prop_assert!(self.fits(server, device, request), "{one:?} does not fit");
            let exclusive = request.usage == Use::Exclusive;
            let memory = if exclusive { device.memory_bytes } else { request.memory_bytes };
            prop_assert_eq!((one.memory_bytes, one.usage), (memory, request.usage));
        }
        Ok(())
    }

    /// That there was no other way.
    fn refuses(&self, request: &Request, refusal: &Refusal) -> Result<(), TestCaseError> {
        let of_kind = self.servers.iter().flat_map(|server| &server.devices);
        let of_kind: Vec<&Device> =
            of_kind.filter(|device| Model::is_kind(device, request)).collect();
        let largest = of_kind.iter().map(|device| device.memory_bytes).max();
        match refusal {
            Refusal::Malformed(what) => prop_assert!(false, "{what}"),
            Refusal::OwnerQuota(_, overdrawn) | Refusal::GroupQuota(_, overdrawn) => {
                prop_assert!(!overdrawn.quota.allows(overdrawn.has.plus(overdrawn.wants)));
            }
            Refusal::NoSuchDevice(_) => prop_assert!(of_kind.is_empty()),
            Refusal::TooMuchMemory(_, most) => {
                prop_assert!(*most < request.memory_bytes);
                prop_assert!(largest == Some(*most) || !request.only.is_empty());
            }
            Refusal::NotThere(named) => prop_assert!(self.device(named).is_none()),
            Refusal::NamedNotFree(named) => {
                let (server, device) = self.device(named).expect("the device is there");
                prop_assert!(!self.fits(server, device, request));
            }
            Refusal::NotFree(_) => {
                prop_assert!(request.avoid.is_empty());
                prop_assert_eq!(self.most(request), 0);
            }
            Refusal::NotElsewhere(avoided) => {
                prop_assert!(!avoided.is_empty() && *avoided == request.avoid);
                prop_assert_eq!(self.most(request), 0);
            }
            Refusal::TooFew { found, .. } => {
                prop_assert_eq!(self.most(request), *found as usize);
                prop_assert!(*found < request.devices);
            }
        }
        Ok(())
    }
}

fn share(usage: Use) -> u32 {
    u32::from(usage.share().percent())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_placed_fits_and_what_is_refused_does_not(
        servers in some_servers(),
        steps in some_steps(),
    ) {
        let mut pool = Pool::new(quotas());
        for server in &servers {
            prop_assert_eq!(pool.register(server.clone()), Ok(vec![]));
        }
        let mut model = Model { servers, ..Model::default() };
        for (number, step) in (0..).map(LeaseNumber).zip(steps) {
            match step {
                Step::Ask(request, policy) => {
                    model.asks(&mut pool, number, request, policy)?;
                }
                Step::AskFor(request, which, policy) => {
                    let request = model.naming(&request, &which);
                    model.asks(&mut pool, number, request, policy)?;
                }
                Step::GiveBack(at) if !model.leases.is_empty() => {
                    let (number, ..) = model.leases.remove(at.index(model.leases.len()));
                    prop_assert!(pool.release(number));
                    prop_assert!(!pool.release(number), "only once");
                }
                Step::Turn(at, condition) if !model.servers.is_empty() => {
                    let at = at.index(model.servers.len());
                    model.servers[at].condition = condition;
                    prop_assert!(pool.set_condition(&model.servers[at].name, condition));
                }
                Step::Last(at, is_last) if !model.servers.is_empty() => {
                    let name = &model.servers[at.index(model.servers.len())].name;
                    pool.set_last(name, is_last);
                    if is_last {
                        model.last.insert(name.clone());
                    } else {
                        model.last.remove(name);
                    }
                }
                Step::GiveBack(_) | Step::Turn(..) | Step::Last(..) => {}
            }
            model.check(&pool)?;
        }
        // A server that says the same again keeps everything.
        let before = pool.clone();
        for server in &model.servers {
            prop_assert_eq!(pool.register(server.clone()), Ok(vec![]));
        }
        prop_assert_eq!(&pool, &before);
    }
}

fn request(devices: u32, gib: u64, usage: Use) -> Request {
    Request { memory_bytes: gib * GIB, usage, ..asked_by("ada", "x", devices) }
}

fn shared(percent: u8) -> Use {
    Use::Shared(Share::try_from(percent).expect("a share"))
}

/// Servers with so many devices of a kind each, all of them linked in pairs.
fn pool(kinds: &[(usize, usize, &str)]) -> Pool {
    let mut pool = Pool::default();
    for (number, (devices, kind, rack)) in kinds.iter().enumerate() {
        let pair = |of: usize| {
            let other = of ^ 1;
            let other = (other < *devices).then(|| format!("GPU-{other}").parse());
            other.into_iter().map(|uuid| uuid.expect("a name")).collect::<Vec<_>>()
        };
        let devices = (0..*devices).map(|of| device(of, (*kind, true), &pair(of))).collect();
        assert_eq!(pool.register(server(number, Condition::Ready, rack, devices)), Ok(vec![]));
    }
    pool
}

fn take(pool: &mut Pool, number: u64, request: &Request, policy: Policy) -> Vec<String> {
    let granted = policy.place(pool, request).unwrap_or_else(|refusal| panic!("{refusal}"));
    let places = granted.iter().map(|one| format!("{}/{}", one.server, one.device)).collect();
    pool.grant(LeaseNumber(number), &request.owner, &request.group, granted).expect("it is free");
    places
}

fn refused(pool: &Pool, request: &Request) -> (String, bool) {
    let all = Policy::ALL.map(|policy| policy.place(pool, request).expect_err("it is refused"));
    assert!(all.iter().all(|refusal| *refusal == all[0]), "every policy says the same: {all:?}");
    (all[0].to_string(), all[0].may_pass())
}

#[test]
fn policies_prefer_what_they_say() {
    let kinds = [(2, 2, "r1"), (2, 2, "r1"), (2, 1, "r2")];
    let small = request(1, 10, shared(10));
    let second = |policy| {
        let mut pool = pool(&kinds);
        let h100 = Request { model: Some("h100".into()), ..small.clone() };
        take(&mut pool, 1, &h100, policy);
        take(&mut pool, 2, &h100, policy).concat()
    };
    assert_eq!(second(Policy::Pack), "gpu0/GPU-0");
    assert_eq!(second(Policy::Spread), "gpu1/GPU-0");
    // The smallest device that will do, and then the one with the least left.
    let mut pool = pool(&kinds);
    let large = request(1, 30, shared(10));
    assert_eq!(take(&mut pool, 1, &large, Policy::BestFit), ["gpu2/GPU-0"]);
    assert_eq!(take(&mut pool, 2, &request(1, 10, shared(10)), Policy::BestFit), ["gpu2/GPU-0"]);
    assert_eq!(take(&mut pool, 3, &request(1, 50, shared(10)), Policy::BestFit), ["gpu0/GPU-0"]);
}

#[test]
fn near_a_label_comes_first_and_elsewhere_next() {
    for policy in Policy::ALL {
        let mut pool = pool(&[(1, 2, "r1"), (1, 2, "r2"), (1, 2, "r1")]);
        let near = Request { near: Some(label("r2")), ..request(1, 10, Use::Exclusive) };
        assert_eq!(take(&mut pool, 1, &near, policy), ["gpu1/GPU-0"], "{policy:?}");
        assert_ne!(take(&mut pool, 2, &near, policy), ["gpu1/GPU-0"], "{policy:?}");
    }
}

#[test]
fn linked_devices_are_taken_together() {
    let mut pool = pool(&[(4, 2, "r1")]);
    let one = request(1, 10, Use::Exclusive);
    assert_eq!(take(&mut pool, 1, &one, Policy::Linked), ["gpu0/GPU-0"]);
    // 1 has lost its neighbour.
    let two = request(2, 10, Use::Exclusive);
    let granted = take(&mut pool, 2, &two, Policy::Linked);
    assert_eq!(granted, ["gpu0/GPU-2", "gpu0/GPU-3"]);
}

#[test]
fn refusals_say_what_would_help() {
    let mut pool = pool(&[(2, 1, "r1"), (1, 1, "r1")]);
    let b200 = Request { model: Some("b200".into()), ..request(1, 1, shared(1)) };
    assert_eq!(
        refused(&pool, &b200),
        (
            "the pool has no device of that model and compute capability; it has A100 (40 GiB, 8.0)"
                .into(),
            false
        )
    );
    assert_eq!(
        refused(&pool, &request(1, 80, shared(1))),
        (
            "no device has 80 GiB of memory; the largest one has 40 GiB: ask for less of each"
                .into(),
            false
        )
    );
    let same = Request { servers: Servers::Same, ..request(3, 1, Use::Exclusive) };
    assert!(
        refused(&pool, &same).0.starts_with("no server has 3 such devices free, the best one 2")
    );
    let distinct = Request { servers: Servers::Distinct, ..request(3, 1, shared(5)) };
    assert!(
        refused(&pool, &distinct).0.contains("as many servers, and such a device is free on 2;")
    );
    assert_eq!(refused(&pool, &request(4, 1, shared(5))).0, "3 of the 4 devices are free");
    for number in 0..3 {
        take(&mut pool, number, &request(1, 10, shared(60)), Policy::Spread);
    }
    assert_eq!(
        refused(&pool, &request(1, 35, shared(40))),
        ("no device has 35 GiB free; the largest free one has 30 GiB".into(), true)
    );
    assert_eq!(
        refused(&pool, &request(1, 5, shared(41))).0,
        "no device has 41 percent of its multiprocessors free; the freest one has 40"
    );
    assert!(refused(&pool, &request(1, 5, Use::Exclusive)).0.contains("is unused"));
    for malformed in
        [request(0, 1, shared(1)), request(1, 0, shared(1)), request(1, u64::MAX >> 30, shared(1))]
    {
        assert!(!refused(&pool, &malformed).1, "{malformed:?}");
    }
}

#[test]
fn quotas_name_who_and_how_much() {
    let mut pool = Pool::new(Quotas {
        group: Quota { devices: Some(1), memory_bytes: None },
        ..Quotas::default()
    });
    let devices = vec![device(0, (1, true), &[])];
    pool.register(server(0, Condition::Ready, "r1", devices)).expect("it is as described");
    let one = request(1, 10, shared(10));
    take(&mut pool, 1, &one, Policy::Pack);
    assert_eq!(
        refused(&pool, &one),
        (
            "group x has 1 device with 10 GiB and asks for 1 device with 10 GiB; its quota is \
             1 device: give back a lease, or wait for one to end"
                .into(),
            true
        )
    );
}

#[test]
fn leases_end_with_what_they_were_of() {
    let mut pool = pool(&[(2, 1, "r1"), (1, 1, "r1")]);
    let empty = pool.clone();
    let all = Request { servers: Servers::Any, ..request(3, 1, Use::Exclusive) };
    take(&mut pool, 7, &all, Policy::Pack);
    let without = server(0, Condition::Ready, "r1", vec![device(0, (1, true), &[])]);
    assert_eq!(pool.register(without.clone()), Ok(vec![LeaseNumber(7)]));
    assert_eq!(pool.usage_of_owner(&all.owner), Usage::default());
    take(&mut pool, 8, &request(2, 1, Use::Exclusive), Policy::Pack);
    assert_eq!(pool.remove(&without.name), [LeaseNumber(8)]);
    assert_eq!(pool.free(&"gpu1".parse().expect("a name")).next(), Some((40 * GIB, 100)));
    let pair: [DeviceUuid; 2] = ["GPU-0", "GPU-1"].map(|uuid| uuid.parse().expect("a name"));
    let [a, b] = &pair;
    let devices = vec![
        device(0, (1, true), std::slice::from_ref(b)),
        device(1, (1, true), std::slice::from_ref(a)),
    ];
    assert_eq!(pool.register(server(0, Condition::Ready, "r1", devices)), Ok(vec![]));
    assert_eq!(pool, empty);
}

#[test]
fn what_is_not_free_is_not_entered() {
    let mut pool = pool(&[(2, 1, "r1")]);
    let two = request(2, 1, Use::Exclusive);
    let granted = Policy::Pack.place(&pool, &two).expect("there are two");
    let one = request(1, 1, shared(1));
    pool.grant(
        LeaseNumber(1),
        &one.owner,
        &one.group,
        vec![Granted { memory_bytes: GIB, usage: one.usage, ..granted[1].clone() }],
    )
    .expect("it is free");
    let before = pool.clone();
    let error = pool.grant(LeaseNumber(2), &two.owner, &two.group, granted.clone());
    assert!(error.expect_err("half is taken").to_string().contains("place the request again"));
    assert_eq!(pool, before, "the free half is not kept");
    let error = pool.grant(LeaseNumber(1), &two.owner, &two.group, granted);
    assert!(error.expect_err("the number is taken").to_string().contains("is there already"));
}

#[test]
fn servers_that_cannot_be_are_refused() {
    let good = server(0, Condition::Ready, "r1", vec![device(0, (1, true), &[])]);
    let with = |change: &dyn Fn(&mut Server)| {
        let mut server = good.clone();
        change(&mut server);
        Pool::default().register(server)
    };
    assert_eq!(with(&|_| {}), Ok(vec![]));
    let wrong: [&dyn Fn(&mut Server); 6] = [
        &|server| server.devices.push(server.devices[0].clone()),
        &|server| server.devices[0].memory_bytes = u64::MAX,
        &|server| server.devices[0].model = "\u{1b}[2J".into(),
        &|server| server.devices[0].load_percent = 101,
        &|server| server.devices[0].nvlink.extend("GPU-9".parse()),
        &|server| server.devices = (0..65).map(|n| device(n, (1, true), &[])).collect(),
    ];
    for (number, change) in wrong.iter().enumerate() {
        let error = with(change).expect_err("it cannot be").to_string();
        assert!(error.starts_with("server gpu0: "), "{number}: {error}");
    }
}

/// A pool in which so many of these requests have leases, and when each ends.
fn taken(
    servers: &[Server],
    requests: &[(Request, i64)],
    policy: Policy,
) -> (Pool, BTreeMap<LeaseNumber, Timestamp>) {
    let mut pool = Pool::default();
    for server in servers {
        assert_eq!(pool.register(server.clone()), Ok(vec![]));
    }
    let mut ends = BTreeMap::new();
    for (number, (request, end)) in (0..).map(LeaseNumber).zip(requests) {
        if let Ok(devices) = policy.place(&pool, request) {
            pool.grant(number, &request.owner, &request.group, devices).expect("it is free");
            ends.insert(number, at(*end));
        }
    }
    (pool, ends)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// What is foreseen comes true if others get the devices only until then, and nothing comes
    /// true before.
    #[test]
    fn what_is_foreseen_comes_true(
        servers in some_servers(),
        had in prop::collection::vec((some_request(), 1..10_i64), 0..12),
        wanted in some_request(),
        others in prop::collection::vec((some_request(), 1..20_i64), 0..12),
        policy in prop::sample::select(Policy::ALL.to_vec()),
    ) {
        let (mut pool, mut ends) = taken(&servers, &had, policy);
        let foreseen = foresee(&policy, &pool, &wanted, ends.iter().map(|(of, end)| (*end, *of)));
        let mut idle = pool.clone();
        ends.keys().for_each(|lease| { idle.release(*lease); });
        let Some(Foreseen { at: when, devices }) = foreseen else {
            prop_assert!(
                policy.place(&pool, &wanted).is_ok() || policy.place(&idle, &wanted).is_err()
            );
            return Ok(());
        };
        prop_assert_eq!(devices.len(), wanted.devices as usize);
        // Not before.
        let mut before = pool.clone();
        ends.iter().filter(|(_, end)| **end < when).for_each(|(of, _)| { before.release(*of); });
        prop_assert!(policy.place(&before, &wanted).is_err());
        // Others come who leave the devices alone, or end by then.
        let kept: Vec<Named> = devices
            .iter()
            .map(|one| Named { server: one.server.clone(), device: one.device.clone() })
            .collect();
        for (number, (request, end)) in (100..).map(LeaseNumber).zip(&others) {
            pool.set_apart(if at(*end) <= when { &[] as &[Named] } else { &kept });
            if let Ok(granted) = policy.place(&pool, request) {
                prop_assert!(at(*end) <= when || granted.iter().all(|one| kept.iter().all(
                    |kept| (&kept.server, &kept.device) != (&one.server, &one.device)
                )));
                pool.grant(number, &request.owner, &request.group, granted).expect("it is free");
                ends.insert(number, at(*end));
            }
        }
        pool.set_apart([]);
        ends.iter().filter(|(_, end)| **end <= when).for_each(|(of, _)| { pool.release(*of); });
        prop_assert!(policy.place(&pool, &wanted).is_ok());
    }
}
