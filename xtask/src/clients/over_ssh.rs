//! Servers that ssh leads to: those of the machine of the end-to-end tests.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::runs::{Came, SMALL, chosen, count, first, server};
use crate::compared;
use crate::stage::Dist;
use crate::{ssh, util};

/// The machine, while this is not dropped.
struct Machine {
    program: Child,
    /// What commands need to reach it.
    surroundings: Vec<(String, String)>,
}

impl Machine {
    fn start() -> Result<Machine> {
        ssh::ensure()?;
        let name = "outboard-sshd";
        util::run(util::cargo().args(["build", "--package", "outboard-e2e", "--bin", name]))?;
        let mut program = Command::new(util::target_dir().join("debug").join(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let lines = BufReader::new(program.stdout.take().context("standard output is piped")?);
        let mut machine = Machine { program, surroundings: Vec::new() };
        for line in lines.lines() {
            let line = line.with_context(|| format!("cannot read what {name} says"))?;
            match line.split_once('=') {
                Some((name, value)) => {
                    machine.surroundings.push((name.to_owned(), value.to_owned()));
                }
                None => return Ok(machine),
            }
        }
        bail!("{name} has started no machine")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Its standard input ends, and it clears away.
        drop(self.program.stdin.take());
        let _ = self.program.wait();
    }
}

pub(super) fn run(whole: bool) -> Result<Came> {
    let dist = Dist::laid_out()?;
    let (cases, server, machine) = (chosen(whole)?, server(&dist)?, Machine::start()?);
    let native = |case: &_| compared::here(&dist, &server, case);
    let through = |case: &_| {
        let mut command = compared::at(&dist, "ssh://gpu1", case);
        command.envs(machine.surroundings.iter().map(|(name, value)| (name, value)));
        command
    };
    let outcome = compared::compare(&cases, |case| Some(native(case)), through)?;
    outcome.check(&[])?;
    Ok(Came { what: count(&outcome), first: Some(first(SMALL, &cases, native, through)?) })
}
