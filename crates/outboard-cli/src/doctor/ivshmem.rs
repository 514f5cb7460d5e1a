//! What this machine has of memory that virtual machines and their host share.

use std::io;
use std::path::Path;

use outboard_transport::ivshmem::{Device, Region, UNKNOWN};
use outboard_wire::Code;

use super::finding::Finding;

const CHECK: &str = "ivshmem";

/// The memory that this virtual machine has, if it has some.
pub(super) fn of_client(named: Option<&Path>) -> Option<Finding> {
    let device = match Device::find(named) {
        Ok(found) => found?,
        Err(error) => {
            let mend = "sessions use the network meanwhile; the program has to be root, or be given the device: `chgrp` and `chmod g+rw`, by a udev rule";
            return Some(Finding::warn(CHECK, error.to_string(), mend));
        }
    };
    let path = device.path().display();
    Some(if device.id() == UNKNOWN {
        let found = format!("no server has used {path} yet");
        let mend = "`outboard serve --ivshmem FILE` on the host, with the device's file; sessions use the network meanwhile";
        Finding::warn(CHECK, found, mend)
    } else {
        Finding::ok(CHECK, format!("{path} is shared with a server"))
    })
}

/// The memory that a server shares with a virtual machine.
pub(super) fn of_server(region: &Region) -> Finding {
    let path = region.path().display();
    match region.prepare() {
        Ok((_, parts)) => Finding::ok(CHECK, format!("{path} has parts for {parts} sessions")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::warn(
            CHECK,
            format!("there is no {path}"),
            "start the virtual machine, whose device makes the file",
        ),
        Err(error) => Finding::fail(
            CHECK,
            Code::CannotListen,
            format!("{path}: {error}"),
            "name the file of the machine's device: QEMU's `mem-path`, libvirt's /dev/shm/NAME",
        ),
    }
}
