//! What callgrind writes: which function called which, how often, and what that cost.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// Calls of a function, and the instructions within them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) calls: u64,
    pub(super) total: u64,
}

/// The costs of functions by name, with those that were called for them.
#[derive(Debug, Default)]
pub(super) struct Costs {
    by_name: BTreeMap<String, Cost>,
}

/// A command under callgrind that writes its counts to `file`.
pub(super) fn command(file: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", file.display()));
    command
}

impl Costs {
    pub(super) fn read(file: &Path) -> Result<Costs> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("callgrind did not write {}", file.display()))?;
        Ok(Costs::parse(&text))
    }

    fn parse(text: &str) -> Costs {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut costs = Costs::default();
        let (mut callee, mut calls) = ("", None);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                resolve(&mut names, name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = resolve(&mut names, name);
            } else if let Some(rest) = line.strip_prefix("calls=") {
                calls = rest.split(' ').next().and_then(|count| count.parse::<u64>().ok());
            } else if let Some(count) = calls.take() {
                // The line behind: where it was called, and what that cost.
                let total = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
                let cost = costs.by_name.entry(callee.to_owned()).or_default();
                cost.calls += count;
                cost.total += total;
            }
        }
        costs
    }

    /// The cost of a function.
    pub(super) fn of(&self, name: &str) -> Result<Cost> {
        self.by_name.get(name).copied().with_context(|| format!("{name} was never called"))
    }
}

/// `(number) name` the first time, `(number)` from then on.
fn resolve<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(text).copied().unwrap_or(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "events: Ir
fn=(1) main
16 3
cfn=(2) cuLaunchKernel
calls=4 10
17 400
cfn=(3) <W as Handler>::command
calls=2 0
18 50
fn=(2)
10 300
cob=(1)
cfn=(4) cuCtxGetDevice
calls=4 2
11 100
fn=(5) other
1 1
cfn=(2)
calls=1 10
2 100
";

    #[test]
    fn costs_are_added_up() {
        let costs = Costs::parse(TEXT);
        assert_eq!(costs.of("cuLaunchKernel").unwrap(), Cost { calls: 5, total: 500 });
        assert_eq!(costs.of("<W as Handler>::command").unwrap(), Cost { calls: 2, total: 50 });
        assert!(costs.of("cuInit").is_err());
    }
}
