//! docs/broker.md for an operator and docs/pool.md for a person, followed line by line, each on a
//! machine that has Outboard.

use super::blocks::{block, word};
use super::podman::{ADDRESS, said};
use super::world::{SOON, World};
use crate::apart::within;
use crate::stage::Dist;
use crate::{programs, util};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const OPERATORS: &str = "docs/broker.md";
const PERSONS: &str = "docs/pool.md";
const FOLDER: &str = "/run/pages";

/// A person who follows the page, with a folder of their own.
struct Reader {
    home: PathBuf,
    daemons: Vec<Child>,
}

impl Reader {
    fn new(name: &str) -> Result<Reader> {
        let home = Path::new(FOLDER).join(name);
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join("bin"))?;
        Ok(Reader { home, daemons: Vec::new() })
    }

    fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["120", "bash", "-ec", script]).current_dir(&self.home).env_clear();
        let dist = util::target_dir().join("dist/bin");
        let path =
            format!("{}:{}:/usr/bin:/bin:/sbin", self.home.join("bin").display(), dist.display());
        command.env("PATH", path).env("HOME", &self.home);
        // Of this run, and not of the machine on which it is.
        command.env("XDG_STATE_HOME", self.home.join("state")).env("XDG_RUNTIME_DIR", &self.home);
        command.env("OUTBOARD_CPU_DEVICES", "2").env("OUTBOARD_CPU_MEMORY", "32G");
        command
    }

    /// What a command that ends prints.
    fn does(&self, script: &str, stdin: &str) -> Result<String> {
        let mut command = self.bash(script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start bash")?;
        child.stdin.take().context("it is piped")?.write_all(stdin.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("`{script}`: {}", said(&output));
        }
        Ok(said(&output))
    }

    /// Starts one that goes on, and waits until it has said something.
    fn starts(&mut self, script: &str, name: &str, text: &str) -> Result<String> {
        let log = self.home.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let mut command = self.bash(script);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        self.daemons.push(command.spawn().context("cannot start bash")?);
        let read = || fs::read_to_string(&log).unwrap_or_default();
        within(SOON, "", || Ok(read().contains(text)))
            .map_err(|_| anyhow::anyhow!("{name} has not said `{text}`: {}", read()))?;
        Ok(read())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let group = rustix::process::Pid::from_child(daemon);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = daemon.wait();
        }
    }
}

/// Writes a program of this name that runs one of ours.
fn stands_for(file: &Path, program: &str) -> Result<()> {
    fs::write(file, format!("#!/bin/sh\nexec {}/{program}\n", programs::dir().display()))?;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

pub(super) fn followed(_: &mut World) -> Result<()> {
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    fs::write("/etc/hosts", format!("{hosts}{ADDRESS} pool1\n{ADDRESS} gpu1\n"))?;
    util::run(Command::new("hostname").arg("gpu1"))?;
    fs::create_dir_all("/etc/outboard")?;
    Dist::laid_out()?;

    let mut operator = Reader::new("operator")?;
    let on_the_broker = block(OPERATORS, "## Setting it up", 1)?;
    let (broker, tokens) = on_the_broker.split_once('\n').context("the broker, and tokens")?;
    let log = operator.starts(broker, "broker", "brokering")?;
    let fingerprint = word(&log, "sha256:")?.to_owned();
    let filled = |text: &str| text.replace("sha256:…", &fingerprint);
    let tokens = tokens.lines().map(|line| operator.does(line, "")).collect::<Result<Vec<_>>>()?;
    let [server, person] = &tokens[..] else { bail!("the page makes two tokens: {tokens:?}") };
    let file = "/etc/outboard/pool-token";
    fs::write(file, word(server, "obt_")?)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    let on_a_server = filled(&block(OPERATORS, "## Setting it up", 2)?);
    operator.starts(&on_a_server, "server", " serving ")?;

    let ada = Reader::new("ada")?;
    for (name, program) in [("my_program", "attributes"), ("small", "attributes")] {
        stands_for(&ada.home.join(name), program)?;
    }
    stands_for(&ada.home.join("bin/python"), "devices")?;
    symlink(ada.home.join("my_program"), ada.home.join("train.py"))?;
    let lines = block(PERSONS, "## For a person", 1)?;
    let mut words = person.split_whitespace();
    let login = words.find(|word| word.starts_with("outboard+pool://"));
    let login = login.with_context(|| format!("no login in {person}"))?;
    let mut printed = ada.does(&lines, login);
    // The server may have yet to say what it has.
    let waited = within(SOON, "the page's lines work", || {
        if printed.is_err() {
            printed = ada.does(&lines, login);
        }
        Ok(printed.is_ok())
    });
    let printed = printed?;
    waited?;
    ensure!(printed.contains("Outboard CPU"), "`outboard pool` lists no device: {printed}");
    ensure!(printed.matches("right").count() == 2, "two programs: {printed}");
    ensure!(printed.contains("2 devices"), "two devices: {printed}");
    Ok(())
}
