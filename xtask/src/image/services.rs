//! Both services under a real systemd, in a container: installed as docs/service.md and
//! docs/pool.md say, line by line.

use super::base;
use super::blocks::{block, word};
use super::dist;
use super::podman::{ADDRESS, Container, podman};
use super::world::{SOON, World, succeeded};
use crate::apart::within;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// What a machine has that a container lacks: a person who edits, and another one to be.
const SHIMS: [(&str, &str); 2] = [
    (
        "sudo",
        "[ \"$1\" = -u ] || exec \"$@\"\nuser=$2\nshift 2\nexec runuser -u \"$user\" -- \"$@\"",
    ),
    ("sudoedit", "printf '[serve]\\ndriver = \"cpu\"\\nlisten = \"0.0.0.0\"\\n' > \"$1\""),
];
/// Where the lines of the pages are said.
const CHECKOUT: &str = "/srv/outboard";

/// A machine with systemd.
struct Machine(Container);

impl Machine {
    fn start() -> Result<Machine> {
        let image = "localhost/systemd";
        podman(&["import", "--quiet", &base::with_systemd().display().to_string(), image])?;
        let shims = std::path::Path::new("/run/shims");
        fs::create_dir_all(shims)?;
        for (name, script) in SHIMS {
            let file = shims.join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n"))?;
            fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
        }
        let volumes = [
            format!("--volume={}:/shims:ro", shims.display()),
            format!("--volume={}:{CHECKOUT}/target/dist:ro", dist().display()),
        ];
        let mut args = vec!["run", "--detach", "--name=services", "--systemd=always"];
        // systemd mounts things to confine services, also a /proc of their own, which the kernel
        // allows only where nothing lies over the container's.
        args.extend(["--cap-add=SYS_ADMIN", "--security-opt=unmask=ALL"]);
        args.extend(volumes.iter().map(String::as_str));
        args.extend([image, "/lib/systemd/systemd"]);
        podman(&args)?;
        let machine = Machine(Container { name: "services".into() });
        within(SOON, "systemd has started", || {
            Ok(machine.says("systemctl is-system-running || true")?.trim() == "running")
        })?;
        Ok(machine)
    }

    /// What a line of shell prints in it, which must succeed.
    fn says(&self, line: &str) -> Result<String> {
        let path = "--env=PATH=/shims:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        podman(&["exec", path, "--workdir", CHECKOUT, &self.0.name, "sh", "-ec", line])
            .with_context(|| self.journal())
    }

    fn journal(&self) -> String {
        self.0
            .exec(&["journalctl", "--no-pager", "--lines=12", "--unit=outboard*"])
            .unwrap_or_default()
    }

    /// Does what a page says, and gives what it prints.
    fn follow(&self, page: &str, heading: &str) -> Result<String> {
        self.says(&block(page, heading, 1)?)
    }

    fn is_active(&self, unit: &str) -> Result<()> {
        within(SOON, &format!("{unit} is active"), || {
            Ok(self.says(&format!("systemctl is-active {unit} || true"))?.trim() == "active")
        })
        .with_context(|| self.journal())
    }

    /// How exposed systemd finds a unit that runs.
    fn exposure(&self, unit: &str) -> Result<f32> {
        let said = self.says(&format!("systemd-analyze security --no-pager {unit}"))?;
        let line = said.lines().find(|line| line.contains("Overall exposure level"));
        let line = line.with_context(|| format!("no level: {said}"))?;
        eprintln!("    {}", line.trim());
        let mut words = line.split_whitespace();
        words.find_map(|word| word.parse().ok()).context("a level")
    }
}

fn token(name: &str, text: &str) -> Result<String> {
    let file = format!("/run/{name}.token");
    fs::write(&file, word(text, "obt_")?)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

pub(super) fn services(world: &mut World) -> Result<()> {
    let machine = Machine::start()?;
    let said = machine.follow("docs/service.md", "# The server as a service")?;
    machine.is_active("outboard")?;
    ensure!(machine.exposure("outboard.service")? <= 1.9, "it is more exposed than the page says");
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

    let said = machine.follow("docs/pool.md", "### As a service")?;
    machine.is_active("outboard-broker")?;
    let exposure = machine.exposure("outboard-broker.service")?;
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
