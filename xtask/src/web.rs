//! `cargo xtask web`: the broker's page in a real browser, of a real broker with real servers.
//!
//! Browser, driver and rules for accessibility are fetched, about 100 MB, and unpacked in
//! `target/web`: nothing is installed.

mod browser;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::test::{Count, Failure, padded_failures};
use crate::util::{self, root, step};
use browser::Browser;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build nothing: look at what was laid out before.
    #[arg(long)]
    no_build: bool,
    /// Only tests whose names match this pattern.
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Take the picture of the page for the documentation instead.
    #[arg(long)]
    picture: bool,
}

/// The tests.
const PLACE: &str = "tests/web/page.test.mjs";
/// The picture of the page in the documentation.
const PICTURE: &str = "docs/pool-page.webp";

pub(crate) fn run(args: &Args) -> Result<()> {
    let count = match tools() {
        Ok((browser, modules)) => {
            let dist = if args.no_build { Dist::laid_out() } else { Dist::build(Profile::Dev) }?;
            look(args, &dist, &browser, &modules)?
        }
        Err(why) => Count::skipped(format!("the page in a browser: {why:#}")),
    };
    count.skipped.iter().for_each(|why| eprintln!("skipped {why}"));
    util::print(&format!("{count}\n"))?;
    if !count.failed.is_empty() {
        bail!("the page is not as it should be");
    }
    Ok(())
}

/// Gets what the tests need, or says why it cannot be had.
fn tools() -> Result<(Browser, PathBuf)> {
    let node = Command::new("node").arg("--version").output().context("Node.js is needed")?;
    let version = String::from_utf8_lossy(&node.stdout).trim().to_owned();
    let major =
        version.trim_start_matches('v').split('.').next().and_then(|text| text.parse().ok());
    if major.is_none_or(|major: u32| major < 20) {
        bail!("Node.js 20 or later is needed, and this is {version}");
    }
    let folder = util::target_dir().join("web");
    let browser = Browser::ensure(&folder.join("browser"))?;
    Ok((browser, modules(&folder.join("tests"))?))
}

/// The tests in a folder that has the packages which they import.
fn modules(folder: &Path) -> Result<PathBuf> {
    let source = root().join("tests/web");
    fs::create_dir_all(folder)?;
    let lock =
        fs::read(source.join("package-lock.json")).context("there is no list of packages")?;
    let is_there = fs::read(folder.join("installed.json")).is_ok_and(|had| had == lock);
    for entry in fs::read_dir(&source).context("there are no tests of the page")?.flatten() {
        fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    if !is_there {
        step("installing the driver of the browser from npm");
        let mut npm = Command::new("npm");
        npm.current_dir(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        util::run(npm.stdout(Stdio::null()))?;
        fs::write(folder.join("installed.json"), lock)?;
    }
    Ok(folder.to_path_buf())
}

fn look(args: &Args, dist: &Dist, browser: &Browser, modules: &Path) -> Result<Count> {
    let mut node = Command::new("node");
    node.current_dir(modules)
        .env("OUTBOARD_TEST_DIST", &dist.dir)
        .env("OUTBOARD_TEST_PROGRAMS", util::target_dir().join("programs"))
        .env("OUTBOARD_BROWSER", &browser.program)
        .env("OUTBOARD_BROWSER_LIBRARIES", &browser.libraries);
    if args.picture {
        programs::only(&["steps"])?;
        util::run(node.arg("picture.mjs").arg(root().join(PICTURE)))?;
        return Ok(Count::passed(1));
    }
    node.args(["--test", "--test-reporter=tap"]);
    if let Some(only) = &args.only {
        node.arg(format!("--test-name-pattern={only}"));
    }
    node.arg("page.test.mjs");
    Count::of(&mut node, counted).map(|(count, _)| count)
}

/// What the test runner of Node.js says: `not ok 3 - name` of each test that failed, and last
/// `# pass 11`, `# fail 0` and so on.
fn counted(lines: &[String]) -> Count {
    let number = |what: &str| {
        let said = lines.iter().rev().find_map(|line| line.strip_prefix("# ")?.strip_prefix(what));
        said.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    };
    let failed = lines.iter().filter_map(|line| {
        let (_, name) = line.trim_start().strip_prefix("not ok ")?.split_once(" - ")?;
        Some(Failure::new(name, PLACE, ""))
    });
    // What a pattern leaves out is not what could not run.
    Count {
        passed: number("pass "),
        failed: padded_failures(failed.collect(), number("fail ") + number("cancelled "), PLACE),
        ..Count::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_the_runner_are_read() {
        let lines = "ok 1 - # pass 7\nnot ok 2 - map\n# tests 12\n# pass 9\n# fail 2\n# cancelled 1\n# skipped 3";
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        let count = counted(&lines);
        assert_eq!((count.passed, count.failed.len()), (9, 3));
        assert_eq!(count.failed[0].test, "map");
        assert_eq!(counted(&[]), Count::default());
    }
}
