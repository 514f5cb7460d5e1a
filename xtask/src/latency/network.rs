//! Two network namespaces with a pair of virtual interfaces between them, and `tc netem` on both,
//! which delays what is sent.

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The server's address there.
pub(super) const SERVER: &str = "10.0.0.1";
const CLIENT: &str = "10.0.0.2";
/// What the names of all such namespaces begin with; the number of the process follows.
const PREFIX: &str = "outboard-latency-";
/// Where `ip netns` keeps them.
const FOLDER: &str = "/run/netns";
/// Packets that may be under way, each way: no network that is measured here loses any.
const PACKETS: &str = "100000";

/// An end of the network.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Server,
    Client,
}

impl Side {
    /// The name of its interface.
    fn interface(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Client => "client",
        }
    }

    fn namespace(self) -> String {
        format!("{PREFIX}{}-{}", std::process::id(), self.interface())
    }
}

/// The network; it is gone when dropped.
pub(super) struct Network {}

impl Network {
    /// A network whose round trip takes so long, beside what the machine itself needs.
    pub(super) fn create(round_trip: Duration) -> Result<Network> {
        if !rustix::process::geteuid().is_root() {
            bail!(
                "making networks takes root: run this as root, or with --vm, which measures in an emulated machine"
            );
        }
        remove_left();
        // From here on, what was made is removed whatever happens.
        let network = Network {};
        let (server, client) = (Side::Server.namespace(), Side::Client.namespace());
        let link = [
            "link", "add", "server", "netns", &server, "type", "veth", "peer", "client", "netns",
            &client,
        ];
        let made = ip(&["netns", "add", &server]).and_then(|()| ip(&["netns", "add", &client]));
        made.and_then(|()| ip(&link))
            .context("this machine makes no network namespaces; --vm measures in an emulated machine, which does")?;
        for (side, address) in [(Side::Server, SERVER), (Side::Client, CLIENT)] {
            let (namespace, interface) = (side.namespace(), side.interface());
            ip(&["-n", &namespace, "address", "add", &format!("{address}/24"), "dev", interface])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", &namespace, "link", "set", interface, "up"])?;
            if !round_trip.is_zero() {
                let delay = format!("{}us", round_trip.as_micros() / 2);
                let netem = [
                    "qdisc", "add", "dev", interface, "root", "netem", "limit", PACKETS, "delay",
                    &delay,
                ];
                call("tc", &[&["-n", &namespace], &netem[..]].concat()).context(
                    "this kernel has no netem, or lacks its module sch_netem; load or install it, or use --vm, which measures in an emulated machine",
                )?;
            }
        }
        Ok(network)
    }

    /// A program at one end.
    pub(super) fn command(&self, side: Side, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &side.namespace()]).arg(program);
        command
    }

    /// Does something at one end, on a thread of its own. Sockets that it makes stay there.
    pub(super) fn within<T: Send>(
        &self,
        side: Side,
        action: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let path = Path::new(FOLDER).join(side.namespace());
        let namespace =
            File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let there = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .context("cannot enter a network namespace")?;
                action()
            });
            thread.join()
        });
        there.unwrap_or_else(|_| bail!("a thread in a network namespace panicked"))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for side in [Side::Server, Side::Client] {
            // The interfaces go with them.
            if Path::new(FOLDER).join(side.namespace()).exists() {
                let _ = ip(&["netns", "delete", &side.namespace()]);
            }
        }
    }
}

/// Removes the namespaces of runs that were killed.
fn remove_left() {
    let names = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    for name in names.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        if owner(&name).is_some_and(|process| !process_lives(process)) {
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

/// The process whose namespace this is, if it is one of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn process_lives(process: u32) -> bool {
    PathBuf::from(format!("/proc/{process}")).exists()
}

fn ip(args: &[&str]) -> Result<()> {
    call("ip", args)
}

fn call(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output();
    let output = output
        .with_context(|| format!("cannot start `{program}`: install the package iproute2"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed: {}", args.join(" "), said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{FOLDER, Network, SERVER, Side, owner, process_lives};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn a_namespace_belongs_to_the_process_in_its_name() {
        assert_eq!(owner("outboard-latency-17-server"), Some(17));
        assert_eq!(owner("outboard-latency-x-server"), None);
        assert_eq!(owner("other"), None);
        assert!(process_lives(std::process::id()));
        assert!(!process_lives(u32::MAX));
    }

    #[test]
    fn both_ends_of_a_network_meet_and_are_gone_afterwards() {
        // What needs no netem works in every kernel with namespaces, for root.
        let network = match Network::create(Duration::ZERO) {
            Ok(network) => network,
            Err(error) => return assert!(error.to_string().contains("--vm"), "{error:#}"),
        };
        let listener =
            network.within(Side::Server, || Ok(TcpListener::bind((SERVER, 0))?)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = network.within(Side::Client, || Ok(TcpStream::connect(address)?)).unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        let path = Path::new(FOLDER).join(Side::Server.namespace());
        assert!(path.exists());
        drop(network);
        assert!(!path.exists());
    }
}
