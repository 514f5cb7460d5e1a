//! Both services under a real systemd, in a container: installed as docs/service.md and
//! docs/broker.md say, line by line.

use super::base;
use super::blocks::word;
use super::dist;
use super::machine::Machine;
use super::podman::{self, ADDRESS};
use super::world::{SOON, World, succeeded};
use crate::apart::within;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Where the lines of the pages are said.
const CHECKOUT: &str = "/srv/outboard";

/// How exposed systemd finds a unit that runs.
fn exposure(machine: &Machine, unit: &str) -> Result<f32> {
    let said = machine.says(&format!("systemd-analyze security --no-pager {unit}"))?;
    let line = said.lines().find(|line| line.contains("Overall exposure level"));
    let line = line.with_context(|| format!("no level: {said}"))?;
    eprintln!("    {}", line.trim());
    let mut words = line.split_whitespace();
    words.find_map(|word| word.parse().ok()).context("a level")
}

fn token(name: &str, text: &str) -> Result<String> {
    let file = format!("/run/{name}.token");
    fs::write(&file, word(text, "obt_")?)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

pub(super) fn services(world: &mut World) -> Result<()> {
    let staged = format!("{}:{CHECKOUT}/target/dist", dist().display());
    let image = podman::import(&base::with_systemd(), "systemd")?;
    let machine = Machine::start("services", &image, CHECKOUT, &[&staged])?;
    machine.says("cp -r --remove-destination target/dist/* /usr/local/")?;
    let said = machine.follow("docs/service.md", "# The server as a service", 1)?;
    machine.is_active("outboard")?;
    ensure!(
        exposure(&machine, "outboard.service")? <= 1.9,
        "it is more exposed than the page says"
    );
    let flags = [
        format!("--server={ADDRESS}"),
        format!("--tls-fingerprint={}", word(&said, "sha256:")?),
        format!("--token-file={}", token("service", &said)?),
    ];
    let works = || -> Result<()> {
        let mut args = vec!["run"];
        args.extend(flags.iter().map(String::as_str));
        args.extend(["--", "./attributes"]);
        let said = succeeded(&world.outboard(&args)?)?;
        ensure!(said.contains("right"), "{said}");
        Ok(())
    };
    works()?;
    machine.says("systemctl reload outboard")?;
    works()?;
    // It is there again by itself.
    let process = || machine.says("systemctl show --property=MainPID --value outboard");
    let first = process()?;
    machine.says("systemctl kill --kill-whom=main --signal=KILL outboard")?;
    within(SOON, "another process serves", || {
        Ok(!["0", first.trim()].contains(&process()?.trim()))
    })?;
    machine.is_active("outboard")?;
    works()?;
    machine.says("systemctl stop outboard")?;

    let said = machine.follow("docs/broker.md", "## As a service", 1)?;
    machine.is_active("outboard-broker")?;
    let exposure = exposure(&machine, "outboard-broker.service")?;
    ensure!(exposure <= 1.5, "it is more exposed than before");
    machine.says("systemctl restart outboard-broker")?;
    machine.is_active("outboard-broker")?;
    let mut pool = world.command(&["pool", "leases"]);
    pool.env("OUTBOARD_POOL", format!("https://{ADDRESS}"));
    pool.env("OUTBOARD_POOL_TOKEN_FILE", token("operator", &said)?);
    pool.env("OUTBOARD_POOL_FINGERPRINT", word(&said, "sha256:")?);
    succeeded(&pool.output().context("outboard starts")?)?;
    let failed = machine.says("systemctl --failed --no-legend --plain")?;
    ensure!(failed.trim().is_empty(), "{failed}");
    Ok(())
}
