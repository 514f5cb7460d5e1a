//! The devices of several servers as those of one machine.

use std::collections::{BTreeMap, BTreeSet};

use super::{Device, Platform};
use crate::device_id::ServerId;

/// `CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`, `_BUS_ID` and `_DEVICE_ID`.
const PCI: [u32; 3] = [50, 33, 34];

/// The platforms of a process's servers, which come in order, as one. `mentions` says in which
/// order the process sees their devices: one at each mention of their server, what is left at the
/// last; those of a server without a mention are not there. Programs tell devices apart by their
/// PCI addresses and UUIDs: a server some of whose PCI addresses are taken gets PCI domains that no
/// other has, and a UUID that is taken is counted up until it is free.
pub fn merged(platforms: Vec<Platform>, mentions: &[ServerId]) -> Platform {
    let mut all = Platform { driver_version: u32::MAX, ..Platform::default() };
    for (place, platform) in platforms.into_iter().enumerate() {
        all.driver_version = all.driver_version.min(platform.driver_version);
        if place == 0 {
            all.driver_name = platform.driver_name;
        }
        let lacks = platform.lacks.into_iter().filter(|name| !all.lacks.contains(name));
        all.lacks.extend(lacks.collect::<Vec<_>>());
        let mut devices = platform.devices;
        if devices
            .iter()
            .any(|device| all.devices.iter().any(|other| address(other) == address(device)))
        {
            move_domains(&mut devices, &all.devices);
        }
        let server = ServerId::new(place).unwrap_or_default();
        let uuids: BTreeSet<[u8; 16]> = all.devices.iter().map(|device| device.uuid).collect();
        for device in &mut devices {
            while uuids.contains(&device.uuid) {
                device.uuid = u128::from_be_bytes(device.uuid).wrapping_add(1).to_be_bytes();
            }
            device.id = device.id.of(server);
            device.peers.iter_mut().for_each(|peer| *peer = peer.of(server));
        }
        all.devices.extend(devices);
    }
    all.devices = arranged(all.devices, mentions);
    all
}

fn arranged(mut devices: Vec<Device>, mentions: &[ServerId]) -> Vec<Device> {
    let mut arranged = Vec::with_capacity(devices.len());
    for (place, server) in mentions.iter().enumerate() {
        let most = if mentions[place + 1..].contains(server) { 1 } else { usize::MAX };
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for device in devices {
            let takes = device.id.server() == *server && taken.len() < most;
            if takes { taken.push(device) } else { left.push(device) }
        }
        arranged.append(&mut taken);
        devices = left;
    }
    arranged
}

fn address(device: &Device) -> [Option<i32>; 3] {
    PCI.map(|attribute| device.attribute(attribute))
}

/// Gives each PCI domain of `devices` a number that no domain has.
fn move_domains(devices: &mut [Device], others: &[Device]) {
    let domain = |device: &Device| device.attribute(PCI[0]);
    let own: BTreeSet<i32> = devices.iter().filter_map(domain).collect();
    let taken: BTreeSet<i32> =
        others.iter().filter_map(domain).chain(own.iter().copied()).collect();
    let free = (1..).filter(|number| !taken.contains(number));
    let moved: BTreeMap<i32, i32> = own.into_iter().zip(free).collect();
    for (attribute, value) in devices.iter_mut().flat_map(|device| &mut device.attributes) {
        if *attribute == PCI[0] {
            *value = moved[value];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_id::DeviceId;

    fn platform(driver_version: u32, lacks: &[&str], devices: &[(i32, i32, u8)]) -> Platform {
        let device = |(ordinal, (domain, bus, uuid)): (usize, &(i32, i32, u8))| Device {
            id: DeviceId::new(ordinal as u32),
            uuid: [*uuid; 16],
            attributes: vec![(33, *bus), (34, 0), (50, *domain)],
            peers: (0..devices.len() as u32)
                .filter(|other| *other != ordinal as u32)
                .map(DeviceId::new)
                .collect(),
            ..Device::default()
        };
        Platform {
            driver_version,
            driver_name: format!("driver {driver_version}"),
            devices: devices.iter().enumerate().map(device).collect(),
            lacks: lacks.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn servers(places: &[usize]) -> Vec<ServerId> {
        places.iter().copied().filter_map(ServerId::new).collect()
    }

    #[test]
    fn devices_come_as_their_servers_are_mentioned() {
        let two = platform(1, &[], &[(0, 1, 1), (0, 2, 2)]);
        let one = platform(1, &[], &[(0, 3, 3)]);
        for (mentions, expected) in [
            (&[0, 1][..], [1, 2, 3]),
            (&[1, 0], [3, 1, 2]),
            (&[0, 1, 0], [1, 3, 2]),
            (&[0, 1, 0, 0], [1, 3, 2]),
        ] {
            let all = merged(vec![two.clone(), one.clone()], &servers(mentions));
            assert_eq!(
                all.devices.iter().map(|device| device.uuid[0]).collect::<Vec<_>>(),
                expected,
                "{mentions:?}"
            );
        }
    }

    fn domains(platform: &Platform) -> Vec<i32> {
        platform.devices.iter().filter_map(|device| device.attribute(PCI[0])).collect()
    }

    #[test]
    fn one_platform_stays_as_it_is() {
        let one = platform(13000, &["cuA"], &[(0, 1, 7), (0, 2, 8)]);
        assert_eq!(merged(vec![one.clone()], &servers(&[0])), one);
    }

    #[test]
    fn devices_keep_their_server_and_what_the_oldest_driver_has_is_offered() {
        let all = merged(
            vec![
                platform(13000, &["cuA"], &[(0, 1, 7)]),
                platform(12080, &["cuA", "cuB"], &[(0, 2, 8), (0, 3, 9)]),
            ],
            &servers(&[0, 1]),
        );
        assert_eq!((all.driver_version, all.driver_name.as_str()), (12080, "driver 13000"));
        assert_eq!(all.lacks, ["cuA", "cuB"]);
        let second = ServerId::new(1).unwrap();
        let ids: Vec<DeviceId> = all.devices.iter().map(|device| device.id).collect();
        assert_eq!(
            ids,
            [DeviceId::new(0), DeviceId::new(0).of(second), DeviceId::new(1).of(second)]
        );
        assert!(all.devices[0].peers.is_empty());
        assert_eq!(all.devices[1].peers, [ids[2]], "a device reaches those of its own server");
        assert_eq!(domains(&all), [0, 0, 0], "no two addresses were equal");
    }

    #[test]
    fn equal_addresses_and_uuids_are_told_apart() {
        let twice = platform(13000, &[], &[(0, 1, 7), (2, 1, 8)]);
        let all = merged(vec![twice.clone(), twice.clone(), twice], &servers(&[0, 1, 2]));
        assert_eq!(domains(&all), [0, 2, 1, 3, 4, 5]);
        let addresses: BTreeSet<_> = all.devices.iter().map(address).collect();
        let uuids: BTreeSet<_> = all.devices.iter().map(|device| device.uuid).collect();
        assert_eq!((addresses.len(), uuids.len()), (6, 6));
        assert_eq!(all.devices[0].uuid, [7; 16], "the first one keeps its own");
    }

    #[test]
    fn a_uuid_that_counts_over_stays_apart() {
        let all = merged(
            vec![platform(1, &[], &[(0, 1, 255)]), platform(1, &[], &[(0, 1, 255)])],
            &servers(&[0, 1]),
        );
        assert_eq!(all.devices[1].uuid, [0; 16]);
    }
}
