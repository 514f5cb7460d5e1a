//! A network of the machine's own, in which this machine is [`HOST`]: QEMU carries what goes there
//! to the loopback interface.

use anyhow::{Result, bail};
use std::process::{Command, Stdio};

/// The machine's driver of its interface.
pub(super) const DRIVER: &str = "virtio_net";
/// The interface, as the kernel names the first one.
const INTERFACE: &str = "eth0";
/// Its address, and what `--network` says of the outer machine's.
const OWN: &str = "10.0.2.15/24";
pub(super) const HOST: &str = "10.0.2.2";

/// What QEMU needs to know.
pub(super) fn arguments() -> [String; 4] {
    [
        "-netdev".to_owned(),
        format!("user,id=network,host={HOST}"),
        "-device".to_owned(),
        "virtio-net-pci,netdev=network,romfile=".to_owned(),
    ]
}

/// Inside: switches the interface on.
pub(super) fn join() -> Result<()> {
    for args in [&["addr", "add", OWN, "dev", INTERFACE][..], &["link", "set", INTERFACE, "up"]] {
        let status = Command::new("ip").args(args).stdin(Stdio::null()).status();
        if !status.as_ref().is_ok_and(|status| status.success()) {
            bail!("`ip {}` fails: {status:?}", args.join(" "));
        }
    }
    Ok(())
}
