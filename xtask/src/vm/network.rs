//! A network of the machine's own, in which this machine is [`HOST`].

use anyhow::{Result, bail};
use std::process::{Command, Stdio};

/// The machine's driver of its interface.
pub(super) const DRIVER: &str = "virtio_net";
/// The interface, as the kernel names the first one.
const INTERFACE: &str = "eth0";
/// Its address, and what `--network` says of the outer machine's.
const OWN: &str = "10.0.2.15/24";
pub(crate) const HOST: &str = "10.0.2.2";
/// The interface at this end, if it is one.
const TAP: &str = "vm0";

/// Who carries what the machine sends.
#[derive(Clone, Copy)]
pub(crate) enum Network {
    /// QEMU, to the loopback interface. It answers for a machine that is paused.
    UserMode,
    /// This machine's kernel, by an interface that [`Network::make_tap`] makes.
    Tap,
}

impl Network {
    /// What QEMU needs to know.
    pub(super) fn arguments(&self) -> [String; 4] {
        let carrier = match self {
            Network::UserMode => format!("user,id=network,host={HOST}"),
            Network::Tap => format!("tap,id=network,ifname={TAP},script=no,downscript=no"),
        };
        let device = "virtio-net-pci,netdev=network,romfile=".to_owned();
        ["-netdev".to_owned(), carrier, "-device".to_owned(), device]
    }

    /// Makes the interface, in a namespace of networks that has none yet.
    pub(crate) fn make_tap() -> Result<()> {
        ip(&["link", "set", "lo", "up"])?;
        ip(&["tuntap", "add", "dev", TAP, "mode", "tap"])?;
        ip(&["addr", "add", &format!("{HOST}/24"), "dev", TAP])?;
        ip(&["link", "set", TAP, "up"])
    }
}

fn ip(args: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(args).stdin(Stdio::null()).status();
    if !status.as_ref().is_ok_and(|status| status.success()) {
        bail!("`ip {}` fails: {status:?}", args.join(" "));
    }
    Ok(())
}

/// Inside: switches the interface on.
pub(super) fn join() -> Result<()> {
    ip(&["addr", "add", OWN, "dev", INTERFACE])?;
    ip(&["link", "set", INTERFACE, "up"])
}
