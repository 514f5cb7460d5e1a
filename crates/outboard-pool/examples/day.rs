//! A day of a large pool: 1,024 servers with 8,192 devices, and what people ask of it. For each
//! policy it says how long a decision takes and how the free memory lies.
//!
//! `cargo run --release -p outboard-pool --example day`, always with the same requests.
#![allow(clippy::print_stdout)]

use outboard_pool::placement::{Placement, Policy, Refusal};
use outboard_pool::state::{Pool, Quota, Quotas};
use outboard_pool::words::{
    Capability, Condition, Device, DeviceUuid, Health, Label, LeaseNumber, Request, Server,
    Servers, Share, Use,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

const SERVERS: usize = 1024;
const DEVICES: usize = 8;
/// In seconds.
const DAY: u64 = 86_400;
const REQUESTS: u64 = 60_000;
const GIB: u64 = 1 << 30;
/// Between two looks at how the free memory lies, in seconds.
const LOOK: u64 = 600;

/// Xorshift: the same numbers in every run and on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("an index fits")]
    }
}

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: impl AsRef<str>) -> T {
    text.as_ref().parse().expect("it is a name")
}

fn rack(of: u64) -> Label {
    Label { key: name("rack"), value: name(format!("r{of}")) }
}

/// Racks of 16 servers; half of the servers have H100s, all linked, the others A100s in pairs,
/// L40S and L4 without links.
fn server(number: usize) -> Server {
    const KINDS: [(&str, u64, u16, usize); 8] = [
        ("NVIDIA H100 80GB HBM3", 80, 9, 8),
        ("NVIDIA A100-PCIE-40GB", 40, 8, 2),
        ("NVIDIA H100 80GB HBM3", 80, 9, 8),
        ("NVIDIA L40S", 48, 8, 1),
        ("NVIDIA H100 80GB HBM3", 80, 9, 8),
        ("NVIDIA A100-PCIE-40GB", 40, 8, 2),
        ("NVIDIA H100 80GB HBM3", 80, 9, 8),
        ("NVIDIA L4", 24, 8, 1),
    ];
    let (model, memory, major, linked) = KINDS[number % KINDS.len()];
    let uuid = |device: usize| -> DeviceUuid { name(format!("GPU-{number}-{device}")) };
    let device = |of: usize| Device {
        uuid: uuid(of),
        model: model.into(),
        memory_bytes: memory * GIB,
        capability: Capability { major, minor: 0 },
        nvlink: (0..DEVICES)
            .filter(|to| *to != of && to / linked == of / linked)
            .map(uuid)
            .collect(),
        load_percent: 0,
        health: Health::Well,
    };
    let label = rack((number / 16) as u64);
    Server {
        name: name(format!("gpu{number}")),
        driver: "570.86.10".into(),
        labels: BTreeMap::from([(label.key, label.value)]),
        condition: Condition::Ready,
        devices: (0..DEVICES).map(device).collect(),
    }
}

/// Notebooks and small services share devices; training has one to eight of them; some want many.
fn request(numbers: &mut Numbers) -> (Request, u64) {
    let (devices, gib, usage, hours) = match numbers.below(100) {
        0..60 => {
            let percent = numbers.one_of(&[5, 10, 25, 50]);
            let share = Share::try_from(percent).expect("it is a share");
            (1, numbers.one_of(&[2, 5, 10, 20, 35]), Use::Shared(share), 8)
        }
        60..80 => (1, numbers.one_of(&[10, 24, 40, 80]), Use::Exclusive, 6),
        80..92 => (numbers.one_of(&[2, 4]), numbers.one_of(&[24, 40, 80]), Use::Exclusive, 8),
        92..99 => (8, numbers.one_of(&[40, 80]), Use::Exclusive, 10),
        _ => (64, 80, Use::Exclusive, 4),
    };
    let together = numbers.below(10) < 7;
    let owner = numbers.below(400);
    let group = name(format!("group{}", owner % 20));
    let owner = name(format!("owner{owner}"));
    let request = Request {
        memory_bytes: gib * GIB,
        usage,
        model: numbers.one_of(&[None, None, None, Some("h100")]).map(Into::into),
        servers: if (2..=8).contains(&devices) && together { Servers::Same } else { Servers::Any },
        near: (numbers.below(10) == 0).then(|| rack(numbers.below(64))),
        ..Request::new(owner, group, devices)
    };
    // Most end soon, few last.
    let most = 1 + numbers.below(2 * hours * 3600);
    (request, 60 + numbers.below(most))
}

/// How the free memory lies, as sums over the looks.
#[derive(Default)]
struct Looks {
    looks: u64,
    used: f64,
    /// Of the free memory, that on devices of which somebody has a part.
    on_used_devices: f64,
    /// Of the idle devices, those on servers where another one is in use.
    on_used_servers: f64,
    whole_servers: u64,
}

impl Looks {
    fn add(&mut self, pool: &Pool) {
        let (mut all, mut free, mut beside, mut idle, mut scattered) = (0, 0, 0, 0, 0);
        for server in pool.servers() {
            let devices: Vec<(u64, u8)> = pool.free(&server.name).collect();
            all += server.devices.iter().map(|device| device.memory_bytes).sum::<u64>();
            free += devices.iter().map(|(bytes, _)| bytes).sum::<u64>();
            let used = devices.iter().filter(|(_, percent)| *percent < 100);
            beside += used.map(|(bytes, _)| bytes).sum::<u64>();
            let unused = devices.iter().filter(|(_, percent)| *percent == 100).count();
            idle += unused;
            if unused == DEVICES {
                self.whole_servers += 1;
            } else {
                scattered += unused;
            }
        }
        self.looks += 1;
        self.used += 1.0 - part(free, all);
        self.on_used_devices += part(beside, free);
        self.on_used_servers += part(scattered as u64, idle as u64);
    }
}

fn part(of: u64, whole: u64) -> f64 {
    of as f64 / whole.max(1) as f64
}

fn day(policy: Policy) {
    let mut pool = Pool::new(Quotas {
        owner: Quota { devices: Some(96), memory_bytes: None },
        group: Quota { devices: Some(1024), memory_bytes: None },
        ..Quotas::default()
    });
    for number in 0..SERVERS {
        pool.register(server(number)).expect("the server is as described");
    }
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut ends = BinaryHeap::new();
    let (mut placed, mut refused) = (Vec::new(), Vec::new());
    let (mut entered, mut over_quota, mut looks) = (Duration::ZERO, 0, Looks::default());
    for number in 0..REQUESTS {
        let now = number * DAY / REQUESTS;
        while ends.peek().is_some_and(|Reverse((end, _))| *end <= now) {
            ends.pop().map(|Reverse((_, lease))| pool.release(lease));
        }
        if now / LOOK > looks.looks {
            looks.add(&pool);
        }
        let (request, seconds) = request(&mut numbers);
        let start = Instant::now();
        let decision = policy.place(&pool, &request);
        let took = start.elapsed();
        match decision {
            Ok(granted) => {
                placed.push(took);
                let start = Instant::now();
                let (owner, group) = (&request.owner, &request.group);
                let lease = LeaseNumber(number);
                pool.grant(lease, owner, group, granted).expect("it was free just now");
                entered += start.elapsed();
                ends.push(Reverse((now + seconds, lease)));
            }
            Err(refusal) => {
                refused.push(took);
                let is_quota = matches!(refusal, Refusal::OwnerQuota(..) | Refusal::GroupQuota(..));
                over_quota += u64::from(is_quota);
            }
        }
    }
    let mean = |sum: f64| 100.0 * sum / looks.looks as f64;
    println!(
        "{policy:?}: {} placed, {} refused ({over_quota} by quota)",
        placed.len(),
        refused.len()
    );
    println!("  entered in {:?} each", entered / u32::try_from(placed.len()).expect("it fits"));
    let all = placed.iter().chain(&refused).copied().collect();
    for (what, times) in [("decisions", all), ("placed", placed), ("refused", refused)] {
        percentiles(what, times);
    }
    println!(
        "  memory in use {:.1} %; of the free memory {:.1} % is on devices in use; of the idle \
         devices {:.1} % are on servers in use; {} servers are idle",
        mean(looks.used),
        mean(looks.on_used_devices),
        mean(looks.on_used_servers),
        looks.whole_servers / looks.looks
    );
}

fn percentiles(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let Some(last) = times.last().copied() else { return };
    let at = |thousandths: usize| times[(times.len() - 1) * thousandths / 1000];
    println!(
        "  {what}: half in {:?}, 99 % in {:?}, 99.9 % in {:?}, all in {last:?}",
        at(500),
        at(990),
        at(999)
    );
}

fn main() {
    for policy in Policy::ALL {
        day(policy);
    }
}
