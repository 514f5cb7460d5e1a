//! The pool for monitoring systems, in the text format of OpenMetrics.

use outboard_pool::api::PoolView;
use outboard_pool::words::{Condition, Health};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfServers {
    condition: &'static str,
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

/// Sizes and counts stay below what a gauge can hold.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The metrics as the pool stands.
pub(crate) fn text(view: &PoolView) -> String {
    let mut registry = Registry::with_prefix("outboard_pool");
    of_servers(view, &mut registry);
    of_devices(view, &mut registry);
    of_owners(view, &mut registry);
    let mut text = String::new();
    // A string takes everything that is written to it.
    let _ = text::encode(&mut text, &registry);
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
    let (leases, queue) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    leases.set(number(view.leases.len() as u64));
    queue.set(number(view.queue.len() as u64));
    registry.register("leases", "Leases that have devices", leases);
    registry.register("queue", "Requests that wait", queue);
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
    for server in &view.servers {
        for device in &server.devices {
            let of = OfDevice {
                server: server.name.to_string(),
                device: device.uuid.to_string(),
                model: device.model.clone(),
            };
            memory.get_or_create(&of).set(number(device.memory_bytes));
            free.get_or_create(&of).set(number(device.free_bytes));
            percent.get_or_create(&of).set(device.free_percent.into());
            load.get_or_create(&of).set(device.load_percent.into());
            well.get_or_create(&of).set((device.health == Health::Well).into());
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
    for owner in &view.owners {
        let of = OfOwner { owner: owner.owner.to_string() };
        devices.get_or_create(&of).set(number(owner.devices));
        memory.get_or_create(&of).set(number(owner.memory_bytes));
        waiting.get_or_create(&of).set(owner.waiting.into());
    }
}
