//! A server in a container, and its workers as the kernel shows them.

use super::podman::{ADDRESS, Container, podman};
use super::world::{Access, World, access, expect_said};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;

/// The volume with its certificate and its tokens.
pub(super) const STATE: &str = "--volume=server-state:/var/lib/outboard";

pub(super) struct Server {
    pub(super) container: Container,
    pub(super) access: Access,
}

impl Server {
    /// One that has a token for somebody. Its workers must be confined in all ways.
    pub(super) fn start(world: &World, flags: &[&str]) -> Result<Server> {
        let image = world.image("server")?;
        let run = ["run", "--rm", STATE, image];
        let create = ["token", "create", "--json", "--owner=me", "--address", ADDRESS];
        let access = access("server", &podman(&[&run[..], &create].concat())?)?;
        let mut all = vec![STATE, "--env=OUTBOARD_SERVE_SANDBOX=strict"];
        all.push("--env=OUTBOARD_SERVE_DRIVER=cpu");
        all.extend(flags);
        let container = Container::start("server", image, &all, &[])?;
        expect_said(&container, " serving ")?;
        Ok(Server { container, access })
    }

    /// The flags by which clients outside reach it.
    pub(super) fn flags(&self) -> [String; 3] {
        [
            format!("--server={ADDRESS}"),
            format!("--tls-fingerprint={}", self.access.fingerprint),
            format!("--token-file={}", self.access.token),
        ]
    }

    /// What the kernel says of its processes, from outside.
    pub(super) fn processes(&self) -> Result<Vec<Process>> {
        let ids = podman(&["top", &self.container.name, "hpid"])?;
        ids.lines().skip(1).map(|id| Process::read(id.trim())).collect()
    }
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) is_worker: bool,
    status: BTreeMap<String, String>,
}

impl Process {
    /// A line of its status.
    pub(super) fn says(&self, key: &str) -> &str {
        self.status.get(key).map_or("", String::as_str)
    }

    fn read(id: &str) -> Result<Process> {
        let read = |what: &str| {
            fs::read_to_string(format!("/proc/{id}/{what}"))
                .with_context(|| format!("process {id}"))
        };
        let is_worker = read("cmdline")?.split('\0').nth(1) == Some("worker");
        let status = read("status")?;
        let status = status.lines().filter_map(|line| line.split_once(":\t"));
        let status = status.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect();
        Ok(Process { is_worker, status })
    }
}
