//! Runs Go tests and counts them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::programs;
use crate::stage::Dist;
use crate::test::{Attempt, Count, Failure, judge};
use crate::util;

/// How long the tests of a package may take.
const LIMIT: &str = "10m";

/// A line of `go test -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    #[serde(default)]
    package: String,
    test: Option<String>,
    #[serde(default)]
    output: String,
}

/// Runs the tests of some packages with commands that are Go. A test that fails is run again,
/// alone.
pub(super) fn run(
    go: impl Fn() -> Command,
    dist: &Dist,
    packages: &[&str],
    environment: &[(&str, PathBuf)],
) -> Result<Count> {
    let with = |args: &[&str]| {
        let mut command = go();
        command
            // One package after the other: each starts servers.
            .args(["test", "-json", "-count", "1", "-p", "1", "-timeout", LIMIT])
            .args(args)
            .env("OUTBOARD_DIST", &dist.dir)
            .env("OUTBOARD_PROGRAMS", programs::dir())
            .envs(environment.iter().map(|(name, value)| (name, value)));
        counted(command)
    };
    let (count, _) = with(packages)?;
    Ok(judge(count, |failure| {
        let only = format!("-run=^{}$", failure.test);
        Attempt::of(with(&[&only, &failure.place]))
    }))
}

/// What the tests came to that a command runs, and what they said.
fn counted(mut command: Command) -> Result<(Count, String)> {
    let shown = util::show(&command);
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = BufReader::new(child.stdout.take().context("standard output is piped")?);
    let mut counted = Counted::default();
    for line in stdout.lines() {
        let line = line.with_context(|| format!("cannot read the output of `{shown}`"))?;
        counted.read(&line);
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    let Counted { count, told, .. } = counted;
    if count.failed.is_empty() && (!status.success() || count.passed == 0) {
        bail!("`{shown}` failed ({status})");
    }
    Ok((count, told))
}

#[derive(Default)]
struct Counted {
    count: Count,
    /// What all tests have said.
    told: String,
    /// What tests have said that have not ended.
    said: BTreeMap<(String, String), String>,
}

impl Counted {
    fn read(&mut self, line: &str) {
        // What is no event is what the compiler says.
        let Ok(event) = serde_json::from_str::<Event>(line) else {
            eprintln!("{line}");
            return;
        };
        let Some(test) = event.test else {
            if event.action == "output" {
                eprint!("{}", event.output);
            }
            return;
        };
        let name = format!("{} {test}", event.package);
        let said = self.said.entry((event.package.clone(), test.clone())).or_default();
        match event.action.as_str() {
            "output" => {
                said.push_str(&event.output);
                self.told.push_str(&event.output);
            }
            "pass" => {
                self.count.passed += 1;
                eprintln!("{name}: passed");
            }
            "fail" => {
                eprintln!("{said}{name}: failed");
                let said = std::mem::take(said);
                match test.rsplit_once('/') {
                    None => self.count.failed.push(Failure::new(test, &event.package, said)),
                    // The test that a part belongs to fails with the part.
                    Some((whole, _)) => {
                        let whole = (event.package, whole.to_owned());
                        self.said.entry(whole).or_default().push_str(&said);
                    }
                }
            }
            "skip" => self.count.skipped.push(format!("{name}: {}", why(said))),
            _ => {}
        }
    }
}

/// The reason in what a skipped test has said: behind the name of the file, before the last line.
fn why(said: &str) -> &str {
    let mut lines = said.lines().filter(|line| line.contains(".go:"));
    lines.next_back().and_then(|line| line.split_once(": ")).map_or("", |(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted() {
        let mut counted = Counted::default();
        for line in [
            r#"{"Action":"run","Package":"p","Test":"A"}"#,
            r#"{"Action":"output","Package":"p","Test":"A","Output":"    a.go:1: no runc\n"}"#,
            r#"{"Action":"output","Package":"p","Test":"A","Output":"--- SKIP: A (0.0s)\n"}"#,
            r#"{"Action":"skip","Package":"p","Test":"A"}"#,
            r#"{"Action":"pass","Package":"p","Test":"B"}"#,
            r#"{"Action":"pass","Package":"p","Test":"B/part"}"#,
            r#"{"Action":"output","Package":"p","Test":"C/part","Output":"no\n"}"#,
            r#"{"Action":"fail","Package":"p","Test":"C/part"}"#,
            r#"{"Action":"fail","Package":"p","Test":"C"}"#,
            r#"{"Action":"fail","Package":"p"}"#,
            "what the compiler says",
        ] {
            counted.read(line);
        }
        let count = counted.count;
        assert_eq!(count.passed, 2);
        assert_eq!(count.failed, [Failure::new("C", "p", "no\n")]);
        assert_eq!(count.skipped, ["p A: no runc"]);
    }
}
