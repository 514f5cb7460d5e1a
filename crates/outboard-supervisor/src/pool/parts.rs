//! What a lease has of this server: its devices, and how much of each.

use outboard_control::messages::Part;
use outboard_pool::lease::Lease;
use outboard_pool::words::{Granted, ServerName, Use};
use outboard_wire::handshake::{Refusal, RefusalCode};
use outboard_wire::platform::{Device, Platform, uuid_text};

/// The parts of a server's devices that a lease has, in its order. A client numbers them from 0:
/// of other devices it knows nothing.
pub(crate) fn parts(
    lease: &Lease,
    server: &ServerName,
    platform: &Platform,
) -> Result<Vec<Part>, Refusal> {
    let part = |granted: &Granted| {
        let is_it = |device: &Device| uuid_text(&device.uuid) == granted.device.as_str();
        let index = platform.devices.iter().position(is_it).ok_or_else(|| {
            let sentence = format!(
                "lease {} has device {}, which this server does not have; ask for a new one",
                lease.number, granted.device
            );
            Refusal { code: RefusalCode::NoDevice, sentence }
        })?;
        Ok(Part {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            memory: granted.memory_bytes,
            percent: granted.usage.share().percent(),
            exclusive: granted.usage == Use::Exclusive,
        })
    };
    lease.on(server).map(part).collect()
}

/// Those that a client asks for, by their numbers in the lease; all if it names none.
pub(crate) fn chosen(parts: &[Part], wanted: &[u32]) -> Result<Vec<Part>, Refusal> {
    if wanted.is_empty() {
        return Ok(parts.to_vec());
    }
    let pick = |number: &u32| {
        parts.get(*number as usize).cloned().ok_or_else(|| {
            let sentence = format!(
                "the lease has no device {number} on this server: it has {}, numbered from 0",
                parts.len()
            );
            Refusal { code: RefusalCode::NoDevice, sentence }
        })
    };
    wanted.iter().map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{granted, lease};
    use super::*;

    fn platform() -> Platform {
        let device = |number: u8| Device { uuid: [number; 16], ..Device::default() };
        Platform { devices: (0..3).map(device).collect(), ..Platform::default() }
    }

    #[test]
    fn a_lease_has_its_devices_in_its_order_and_no_others() {
        let here = "gpu1".parse().unwrap();
        let lease = lease(vec![
            granted("gpu1", 2, 5 << 30, Use::Exclusive),
            granted("gpu2", 1, 1 << 30, Use::Exclusive),
            granted("gpu1", 0, 2 << 30, Use::Shared(30.try_into().unwrap())),
        ]);
        let all = parts(&lease, &here, &platform()).unwrap();
        let shown: Vec<_> = all
            .iter()
            .map(|one| (one.index, one.memory >> 30, one.percent, one.exclusive))
            .collect();
        assert_eq!(shown, [(2, 5, 100, true), (0, 2, 30, false)]);
        let picked = |wanted: &[u32]| {
            chosen(&all, wanted).map(|some| some.iter().map(|one| one.index).collect::<Vec<_>>())
        };
        assert_eq!(picked(&[]), Ok(vec![2, 0]));
        assert_eq!(picked(&[1]), Ok(vec![0]));
        assert!(picked(&[2]).unwrap_err().sentence.contains("it has 2"));
    }

    #[test]
    fn a_device_that_is_gone_is_named() {
        let lease = lease(vec![granted("gpu1", 9, 1, Use::Exclusive)]);
        let refused = parts(&lease, &"gpu1".parse().unwrap(), &platform()).unwrap_err();
        assert_eq!(refused.code, RefusalCode::NoDevice);
        assert!(refused.sentence.contains("GPU-09090909-"), "{}", refused.sentence);
    }
}
