//! What this machine has of vsock, by which virtual machines reach their host.

use std::io;

use outboard_supervisor::vsock::Place;
use outboard_transport::{VsockAddress, vsock};
use outboard_wire::Code;

use super::finding::Finding;

const CHECK: &str = "vsock";
/// The number of a machine that reaches only itself.
const ALONE: u32 = libc::VMADDR_CID_LOCAL;
/// The number of a host.
const HOST: u32 = libc::VMADDR_CID_HOST;
/// The number of a machine that has no device, and is no host.
const NONE: u32 = libc::VMADDR_CID_ANY;

/// Whether a client on this machine can reach a server at an address of vsock.
pub(super) fn of_client(address: VsockAddress) -> Finding {
    match machine() {
        Ok(this) if address.is_local() => match vsock::loopback() {
            Ok(()) => Finding::ok(CHECK, format!("{this}; its loopback works")),
            Err(error) => missing(
                format!("{this}, and does not reach itself: {error}"),
                "`modprobe vsock_loopback`, or name the server by HOST:PORT or unix:/PATH",
            ),
        },
        Ok(this) => Finding::ok(CHECK, this),
        Err(error) => missing(
            error,
            "the host has to give this machine a vsock device (QEMU: -device vhost-vsock-pci,guest-cid=N), and its kernel needs `vsock`",
        ),
    }
}

/// Whether a server can listen there.
pub(super) fn of_server(place: &Place) -> Finding {
    match place {
        Place::Kernel(address) => {
            let listens = vsock::open(*address).map(drop);
            match (listens, machine()) {
                (Ok(()), Ok(this)) => Finding::ok(CHECK, format!("{this}; {place} is free")),
                (Err(error), _) if error.kind() == io::ErrorKind::AddrInUse => {
                    Finding::ok(CHECK, format!("something listens at {place}"))
                        .expect("a server that runs has it; another one needs another port")
                }
                (Err(error), _) => Finding::fail(
                    CHECK,
                    Code::CannotListen,
                    format!("{place}: {error}"),
                    "on a host: `modprobe vhost_vsock`; for this machine's own programs: `modprobe vsock_loopback`",
                ),
                (Ok(()), Err(why)) => Finding::warn(
                    CHECK,
                    why,
                    "`modprobe vhost_vsock` lets virtual machines connect",
                ),
            }
        }
        Place::Forwarded { socket, .. } => {
            let folder = socket.parent().unwrap_or(socket);
            if folder.is_dir() {
                Finding::ok(CHECK, format!("the hypervisor is to connect to {place}"))
            } else {
                let found = format!("there is no folder {}", folder.display());
                Finding::fail(
                    CHECK,
                    Code::CannotListen,
                    found,
                    "the server makes its socket beside the hypervisor's: name the path that the hypervisor has",
                )
            }
        }
    }
}

/// What this machine is to vsock; else why it is nothing.
fn machine() -> Result<String, String> {
    match vsock::local_cid() {
        Ok(ALONE) => Ok("this machine has vsock, and only for itself".to_owned()),
        Ok(HOST) => Ok("this machine is a host of virtual machines (number 2)".to_owned()),
        Ok(NONE) => {
            Err("this kernel has vsock, and neither a device nor virtual machines".to_owned())
        }
        Ok(number) => Ok(format!("this is virtual machine {number} of its host")),
        Err(error) => Err(format!("this machine has no vsock: {}: {error}", vsock::DEVICE)),
    }
}

fn missing(found: String, mend: &str) -> Finding {
    Finding::fail(CHECK, Code::Unreachable, found, mend)
}
