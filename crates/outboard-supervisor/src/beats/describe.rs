//! What a server says of itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use outboard_abi::CUdevice_attribute as A;
use outboard_control::messages::Gauge;
use outboard_pool::words::{
    Capability, Condition, DEVICES_OF_A_SERVER, Device, Health, LabelText, MODEL_LENGTH, Server,
    ServerName,
};
use outboard_wire::platform::{self, Platform, uuid_text};

/// A server with these devices, of whose memory sessions may have so much. `gauges` is how the
/// devices did lately, as far as that is known.
pub(super) fn server(
    name: &ServerName,
    labels: &BTreeMap<LabelText, LabelText>,
    platform: &Platform,
    gauges: &[Gauge],
    most_memory: Option<u64>,
    condition: Condition,
) -> Server {
    let driver = platform.driver_version;
    let devices = platform.devices.iter().take(DEVICES_OF_A_SERVER);
    Server {
        name: name.clone(),
        driver: format!("CUDA {}.{}", driver / 1000, driver % 1000 / 10),
        labels: labels.clone(),
        condition,
        devices: devices.filter_map(|one| device(one, gauges, most_memory)).collect(),
    }
}

fn device(device: &platform::Device, gauges: &[Gauge], most_memory: Option<u64>) -> Option<Device> {
    let attribute = |attribute: A| {
        let value = device.attribute(attribute.0).unwrap_or(0);
        u16::try_from(value).unwrap_or(0)
    };
    let uuid = uuid_text(&device.uuid);
    let gauge = gauges.iter().find(|gauge| gauge.uuid == uuid);
    let uuid_of = |ordinal: &u32| {
        let other = gauges.iter().find(|other| other.ordinal == *ordinal)?;
        other.uuid.parse().ok()
    };
    let load = gauge.and_then(|gauge| gauge.now.utilisation).unwrap_or(0);
    Some(Device {
        uuid: uuid.parse().ok()?,
        model: model(&device.name),
        memory_bytes: most_memory.map_or(device.total_memory, |most| most.min(device.total_memory)),
        capability: Capability {
            major: attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            minor: attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        },
        nvlink: gauge.iter().flat_map(|gauge| &gauge.nvlink).filter_map(uuid_of).collect(),
        load_percent: load.min(100) as u8,
        health: match gauge.and_then(|gauge| gauge.failure.as_ref()) {
            Some(_) => Health::Ill,
            None => Health::Well,
        },
    })
}

/// A model's name as a pool takes it.
fn model(name: &str) -> String {
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    let name: String = name.trim().chars().map(plain).take(MODEL_LENGTH).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Where clients reach a server that listens there: by its machine's name if it listens
/// everywhere.
pub(super) fn reached_at(listens: SocketAddr, machine: &str) -> String {
    if listens.ip().is_unspecified() {
        return format!("{machine}:{}", listens.port());
    }
    listens.to_string()
}

#[cfg(test)]
mod tests {
    use outboard_nvml::Gauges;

    use super::*;

    #[test]
    fn a_server_describes_devices_as_the_pool_takes_them() {
        let of = |number: u8, name: &str| platform::Device {
            uuid: [number; 16],
            name: name.to_owned(),
            total_memory: 80 << 30,
            attributes: vec![
                (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.0, 9),
                (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR.0, 1),
            ],
            ..platform::Device::default()
        };
        let devices = vec![of(1, "NVIDIA H100"), of(2, ""), of(3, &"é".repeat(200))];
        let platform = Platform { driver_version: 13010, devices, ..Platform::default() };
        let labels = BTreeMap::from([("rack".parse().unwrap(), "r7".parse().unwrap())]);
        let name = "gpu1".parse().unwrap();
        let gauge = |ordinal: u32, failure: Option<&str>| Gauge {
            ordinal,
            name: String::new(),
            uuid: uuid_text(&[ordinal as u8 + 1; 16]),
            memory: 0,
            now: Gauges { utilisation: Some(43), ..Gauges::default() },
            failure: failure.map(str::to_owned),
            nvlink: vec![1 - ordinal, 7],
        };
        let gauges = [gauge(0, None), gauge(1, Some("lost"))];
        let told = server(&name, &labels, &platform, &gauges, Some(40 << 30), Condition::Ready);
        assert_eq!(told.check(), Ok(()));
        assert_eq!(
            (told.driver.as_str(), told.labels.len(), told.devices.len()),
            ("CUDA 13.1", 1, 3)
        );
        let first = &told.devices[0];
        assert_eq!((first.model.as_str(), first.memory_bytes >> 30), ("NVIDIA H100", 40));
        assert_eq!(first.capability.to_string(), "9.1");
        assert_eq!((first.load_percent, first.health), (43, Health::Well));
        assert_eq!(first.nvlink, [told.devices[1].uuid.clone()].into());
        assert_eq!(
            (told.devices[1].model.as_str(), told.devices[1].health),
            ("unknown", Health::Ill)
        );
        assert_eq!((told.devices[2].load_percent, told.devices[2].health), (0, Health::Well));
        let many = Platform { devices: (0..99).map(|n| of(n, "x")).collect(), ..platform };
        let many = server(&name, &labels, &many, &[], None, Condition::Draining);
        assert_eq!((many.check(), many.devices.len()), (Ok(()), DEVICES_OF_A_SERVER));
    }

    #[test]
    fn a_server_is_reached_where_it_listens() {
        assert_eq!(reached_at("10.0.0.1:9470".parse().unwrap(), "gpu1"), "10.0.0.1:9470");
        assert_eq!(reached_at("0.0.0.0:9470".parse().unwrap(), "gpu1"), "gpu1:9470");
        assert_eq!(reached_at("[::]:1".parse().unwrap(), "gpu1"), "gpu1:1");
    }
}
