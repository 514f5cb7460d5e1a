//! The pool for monitoring systems, in the text format of OpenMetrics.

use jiff::Timestamp;
use outboard_pool::api::{DeviceView, OwnerView, PoolView};
use outboard_pool::words::{Condition, Health};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::cmp::Reverse;
use std::slice;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfServers {
    condition: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfServer {
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDevice {
    server: String,
    device: String,
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOwner {
    owner: String,
}

/// The most owners that are told apart: those who have the most.
const MOST_OWNERS: usize = 1024;

/// About how many devices are told apart: as many of each server.
const MOST_DEVICES: usize = 32_768;

/// Stands for all that are not told apart.
const OTHERS: &str = "(others)";

/// Sizes and counts stay below what a gauge can hold.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The metrics as the pool stands.
pub(crate) fn text(view: &PoolView, now: Timestamp) -> String {
    let mut registry = registry(true);
    of_servers(view, &mut registry);
    of_queue(view, now, &mut registry);
    of_devices(view, &mut registry);
    of_owners(view, &mut registry);
    encoded(&registry)
}

/// The metrics of a broker that knows nothing of the pool, since another one leads.
pub(crate) fn of_one_that_stands_by() -> String {
    encoded(&registry(false))
}

fn registry(leads: bool) -> Registry {
    let mut registry = Registry::with_prefix("outboard_pool");
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::from(leads));
    registry.register("broker_leads", "Whether this broker leads the pool", gauge);
    registry
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    // A string takes everything that is written to it.
    let _ = text::encode(&mut text, registry);
    text
}

fn of_servers(view: &PoolView, registry: &mut Registry) {
    let servers = Family::<OfServers, Gauge>::default();
    registry.register("servers", "Servers of the pool", servers.clone());
    for (condition, name) in [
        (Condition::Ready, "ready"),
        (Condition::Draining, "draining"),
        (Condition::Silent, "silent"),
    ] {
        let count = view.servers.iter().filter(|server| server.condition == condition).count();
        servers.get_or_create(&OfServers { condition: name }).set(number(count as u64));
    }
    let (silent, owes) =
        (Family::<OfServer, Gauge>::default(), Family::<OfServer, Gauge>::default());
    registry.register("server_silent", "Whether a server says nothing", silent.clone());
    registry.register("server_owes", "Whether a server has yet to end what is over", owes.clone());
    for server in &view.servers {
        let of = OfServer { server: server.name.to_string() };
        silent.get_or_create(&of).set((server.condition == Condition::Silent).into());
        owes.get_or_create(&of).set(server.because.is_some().into());
    }
}

fn of_queue(view: &PoolView, now: Timestamp, registry: &mut Registry) {
    let mut gauge = |name: &str, help: &str, value: usize| {
        let gauge = Gauge::<i64>::default();
        gauge.set(number(value as u64));
        registry.register(name, help, gauge);
    };
    let over = view.leases.iter().filter(|lease| lease.over.is_some()).count();
    gauge("leases", "Leases that have devices", view.leases.len());
    gauge("leases_over", "Leases that are over and still have devices", over);
    gauge("queue", "Requests that wait", view.queue.len());
    let waited = view.queue.iter().map(|ticket| now.duration_since(ticket.since).as_secs()).max();
    let longest = Gauge::<i64>::default();
    longest.set(waited.unwrap_or(0).max(0));
    registry.register("queue_longest_seconds", "How long a request has waited at most", longest);
}

fn of_devices(view: &PoolView, registry: &mut Registry) {
    let (memory, free, percent, load, well) = (
        Family::<OfDevice, Gauge>::default(),
        Family::<OfDevice, Gauge>::default(),
        Family::<OfDevice, Gauge>::default(),
        Family::<OfDevice, Gauge>::default(),
        Family::<OfDevice, Gauge>::default(),
    );
    registry.register("device_memory_bytes", "Memory of a device", memory.clone());
    registry.register("device_free_bytes", "Memory that no lease has", free.clone());
    registry.register("device_free_percent", "Multiprocessors that no lease has", percent.clone());
    registry.register("device_load_percent", "How busy a device was lately", load.clone());
    registry.register("device_well", "Whether a device works", well.clone());
    let of_each = MOST_DEVICES / view.servers.len().max(1);
    for server in &view.servers {
        let (apart, others) = server.devices.split_at(server.devices.len().min(of_each.max(1)));
        let told = apart
            .iter()
            .map(|device| (device.uuid.as_str(), &*device.model, slice::from_ref(device)));
        let together = (!others.is_empty()).then_some((OTHERS, OTHERS, others));
        for (device, model, devices) in told.chain(together) {
            let of = OfDevice {
                server: server.name.to_string(),
                device: device.to_owned(),
                model: model.to_owned(),
            };
            let sum = |of: fn(&DeviceView) -> u64| number(devices.iter().map(of).sum());
            let count = number(devices.len() as u64);
            memory.get_or_create(&of).set(sum(|device| device.memory_bytes));
            free.get_or_create(&of).set(sum(|device| device.free_bytes));
            percent.get_or_create(&of).set(sum(|device| device.free_percent.into()) / count);
            load.get_or_create(&of).set(sum(|device| device.load_percent.into()) / count);
            let are_well = devices.iter().all(|device| device.health == Health::Well);
            well.get_or_create(&of).set(are_well.into());
        }
    }
}

fn of_owners(view: &PoolView, registry: &mut Registry) {
    let (devices, memory, waiting) = (
        Family::<OfOwner, Gauge>::default(),
        Family::<OfOwner, Gauge>::default(),
        Family::<OfOwner, Gauge>::default(),
    );
    registry.register("owner_devices", "Devices and parts that an owner has", devices.clone());
    registry.register("owner_memory_bytes", "Memory that an owner has", memory.clone());
    registry.register("owner_waiting", "Requests of an owner that wait", waiting.clone());
    let mut owners: Vec<&OwnerView> = view.owners.iter().collect();
    // In a stable order: those who have as much keep their names.
    owners.sort_by_key(|owner| Reverse((owner.devices, owner.waiting)));
    let (apart, others) = owners.split_at(owners.len().min(MOST_OWNERS));
    let told = apart.iter().map(|owner| (owner.owner.as_str(), slice::from_ref(owner)));
    let together = (!others.is_empty()).then_some((OTHERS, others));
    for (owner, owners) in told.chain(together) {
        let of = OfOwner { owner: owner.to_owned() };
        let sum = |of: fn(&OwnerView) -> u64| number(owners.iter().map(|owner| of(owner)).sum());
        devices.get_or_create(&of).set(sum(|owner| owner.devices));
        memory.get_or_create(&of).set(sum(|owner| owner.memory_bytes));
        waiting.get_or_create(&of).set(sum(|owner| owner.waiting.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use outboard_pool::api::{LeaseView, ServerView, TicketView};
    use outboard_pool::state::Quota;
    use outboard_pool::words::{Capability, GroupName, LeaseNumber, OwnerName, Use};
    use outboard_test_support::monitoring::{Shipped, check};

    fn view(now: Timestamp) -> PoolView {
        let (owner, group): (OwnerName, GroupName) =
            ("ada".parse().unwrap(), "vision".parse().unwrap());
        let device = DeviceView {
            uuid: "GPU-1".parse().unwrap(),
            model: "H100".into(),
            capability: Capability { major: 9, minor: 0 },
            memory_bytes: 80,
            free_bytes: 70,
            free_percent: 60,
            load_percent: 50,
            health: Health::Ill,
            leases: Vec::new(),
        };
        let server = |name: &str, condition, because: Option<&str>| ServerView {
            name: name.parse().unwrap(),
            address: String::new(),
            release: String::new(),
            driver: String::new(),
            labels: Default::default(),
            condition,
            because: because.map(str::to_owned),
            heard: None,
            devices: vec![device.clone()],
        };
        let lease = LeaseView {
            number: LeaseNumber(1),
            owner: owner.clone(),
            group: group.clone(),
            asked_by: owner.clone(),
            purpose: None,
            since: now,
            expires: now,
            renewable_until: now,
            sessions: 0,
            used_bytes: 0,
            over: Some("it was ended".into()),
            devices: Vec::new(),
        };
        let ticket = |waited: i64| TicketView {
            ticket: 1,
            place: 1,
            owner: owner.clone(),
            asked_by: owner.clone(),
            purpose: None,
            since: now - SignedDuration::from_secs(waited),
            devices: 1,
            memory_bytes: 0,
            usage: Use::Exclusive,
            because: String::new(),
        };
        let quota = Quota::default();
        let of = OwnerView {
            owner: owner.clone(),
            group,
            devices: 1,
            memory_bytes: 1,
            waiting: 2,
            quota,
        };
        PoolView {
            release: String::new(),
            policy: String::new(),
            servers: vec![
                server("gpu1", Condition::Silent, None),
                server("gpu2", Condition::Draining, Some("it owes")),
            ],
            leases: vec![lease.clone(), LeaseView { over: None, ..lease }],
            queue: vec![ticket(9), ticket(70)],
            owners: vec![of],
            next: None,
        }
    }

    #[test]
    fn what_alerts_ask_for_is_told() {
        let now = Timestamp::now();
        let text = text(&view(now), now);
        for line in [
            "outboard_pool_broker_leads 1",
            "outboard_pool_server_silent{server=\"gpu1\"} 1",
            "outboard_pool_server_silent{server=\"gpu2\"} 0",
            "outboard_pool_server_owes{server=\"gpu2\"} 1",
            "outboard_pool_leases 2",
            "outboard_pool_leases_over 1",
            "outboard_pool_queue 2",
            "outboard_pool_queue_longest_seconds 70",
        ] {
            assert!(text.lines().any(|said| said == line), "{line}: {text}");
        }
        let shipped = Shipped {
            dashboard: "grafana/outboard-pool.json",
            alerts: "prometheus/outboard-pool.rules.yml",
            queries: 20,
        };
        check(&text, &shipped);
    }

    #[test]
    fn owners_and_devices_are_told_apart_as_far_as_there_is_room() {
        let now = Timestamp::now();
        let mut view = view(now);
        let (owner, server) = (view.owners[0].clone(), view.servers[1].clone());
        view.owners = (0..20_000)
            .map(|at| OwnerView {
                owner: format!("owner{at}").parse().unwrap(),
                devices: at,
                ..owner.clone()
            })
            .collect();
        let devices = (0..64).map(|at| DeviceView {
            uuid: format!("GPU-{at}").parse().unwrap(),
            health: Health::Well,
            ..server.devices[0].clone()
        });
        let server = ServerView { devices: devices.collect(), ..server };
        view.servers = (0..4096)
            .map(|at| ServerView { name: format!("gpu{at}").parse().unwrap(), ..server.clone() })
            .collect();
        let text = text(&view, now);
        let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(series("outboard_pool_owner_devices{"), MOST_OWNERS + 1);
        assert_eq!(series("outboard_pool_device_well{"), 4096 * (8 + 1));
        let left_out: u64 = (0..20_000 - MOST_OWNERS as u64).sum();
        for line in [
            "outboard_pool_owner_devices{owner=\"owner19999\"} 19999".to_owned(),
            format!("outboard_pool_owner_devices{{owner=\"(others)\"}} {left_out}"),
            format!("outboard_pool_owner_waiting{{owner=\"(others)\"}} {}", 2 * (20_000 - 1024)),
        ] {
            assert!(text.lines().any(|said| said == line), "{line}");
        }
        let of = "{server=\"gpu7\",device=\"(others)\",model=\"(others)\"}";
        for (name, value) in
            [("memory_bytes", 80 * 56), ("free_percent", 60), ("load_percent", 50), ("well", 1)]
        {
            let line = format!("outboard_pool_device_{name}{of} {value}");
            assert!(text.lines().any(|said| said == line), "{line}");
        }
        assert!(text.len() < 32 << 20, "{}", text.len());
    }
}
