//! A pool in containers: a broker, and a server that belongs to it.

use super::podman::{self, ADDRESS, Container, podman};
use super::server::Server;
use super::world::{Access, SOON, World, access, expect_said, succeeded};
use crate::apart::within;
use anyhow::{Context, Result, ensure};

struct Pool {
    broker: Container,
    person: Access,
    _server: Server,
}

fn url() -> String {
    format!("https://{ADDRESS}")
}

impl Pool {
    fn start(world: &World) -> Result<Pool> {
        let state = "--volume=broker-state:/var/lib/outboard";
        let broker = Container::start("broker", world.image("broker")?, &[state], &[])?;
        expect_said(&broker, "brokering")?;
        let token = |role: &str, owner: &str| {
            let words = ["outboard", "token", "create", "--broker", "--json"];
            let who = ["--role", role, "--owner", owner];
            access(&format!("pool-{role}"), &broker.exec(&[&words[..], &who].concat())?)
        };
        let (server, person) = (token("server", "servers")?, token("client", "ada")?);
        let mounted = format!("--volume={}:/run/secrets/pool:ro", server.token);
        let fingerprint = format!("--env=OUTBOARD_SERVE_POOL_FINGERPRINT={}", server.fingerprint);
        let server = Server::start(
            world,
            &[
                &mounted,
                &fingerprint,
                &format!("--env=OUTBOARD_SERVE_POOL={}", url()),
                "--env=OUTBOARD_SERVE_POOL_TOKEN_FILE=/run/secrets/pool",
                &format!("--env=OUTBOARD_SERVE_POOL_ADDRESS={ADDRESS}:9470"),
            ],
        )?;
        let pool = Pool { broker, person, _server: server };
        pool.has_device(world)?;
        Ok(pool)
    }

    /// Ada's command, with the broker as a person has it.
    fn outboard(&self, world: &World, first: &[&str], rest: &[&str]) -> std::process::Command {
        let mut command = world.command(&[first, rest].concat());
        command.env("OUTBOARD_POOL", url());
        command.env("OUTBOARD_POOL_FINGERPRINT", &self.person.fingerprint);
        command.env("OUTBOARD_POOL_TOKEN_FILE", &self.person.token);
        command
    }

    /// Waits until Ada sees the server's device.
    fn has_device(&self, world: &World) -> Result<()> {
        let mut said = String::new();
        let has = within(SOON, "the broker knows the server's device", || {
            said = podman::said(&self.outboard(world, &["pool"], &["devices"]).output()?);
            Ok(said.contains("Outboard CPU"))
        });
        has.context(said)
    }

    fn runs(&self, world: &World) -> Result<()> {
        let args = ["--gpus=1", "--wait=20s", "--", "./attributes"];
        let said = self.outboard(world, &["run"], &args).output().context("outboard starts")?;
        let said = succeeded(&said)?;
        ensure!(said.contains("right"), "{said}");
        Ok(())
    }
}

pub(super) fn leased(world: &mut World) -> Result<()> {
    Pool::start(world)?.runs(world)
}

pub(super) fn killed(world: &mut World) -> Result<()> {
    let pool = Pool::start(world)?;
    pool.runs(world)?;
    podman(&["kill", "--signal=KILL", &pool.broker.name])?;
    within(SOON, "the broker is gone", || {
        let state = podman(&["inspect", "--format={{.State.Running}}", &pool.broker.name])?;
        Ok(state.trim() == "false")
    })?;
    podman(&["start", &pool.broker.name])?;
    // With the same certificate and the same tokens, those of the volume.
    pool.has_device(world)?;
    pool.runs(world)
}
