//! The page's own tests, where Node.js is there to run them.

use std::path::{Path, PathBuf};
use std::process::Command;

use outboard_test_support::skip;

/// The oldest release of Node.js whose test runner will do.
const OLDEST: u32 = 20;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files in a folder.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(package().join(folder)).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    assert!(!files.is_empty(), "{folder} has files");
    files
}

/// Why there is no Node.js that would do, if so.
fn no_node() -> Option<String> {
    let output = match Command::new("node").arg("--version").output() {
        Ok(output) => output,
        Err(error) => return Some(format!("node does not start: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let major = said.trim_start_matches('v').split('.').next().and_then(|text| text.parse().ok());
    let will_do = major.is_some_and(|major: u32| major >= OLDEST);
    (!will_do).then(|| format!("node {OLDEST} or later is needed, and this is {said}"))
}

fn run(args: &[&str]) -> String {
    let output = Command::new("node").current_dir(package()).args(args).output();
    let output = output.expect("node starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "node {args:?}:\n{said}");
    said
}

#[test]
fn scripts_are_scripts() {
    if let Some(why) = no_node() {
        skip!("{why}");
    }
    for path in files("page") {
        if path.extension().is_some_and(|ending| ending == "js") {
            run(&["--check", &path.display().to_string()]);
        }
    }
}

#[test]
fn what_needs_no_browser_is_right() {
    if let Some(why) = no_node() {
        skip!("{why}");
    }
    let said = run(&["--test", "--test-reporter=tap", "tests/page"]);
    let passed = said.lines().find_map(|line| line.strip_prefix("# pass ")?.parse().ok());
    assert!(passed.is_some_and(|passed: u32| passed >= 10), "tests have run:\n{said}");
}

#[test]
fn lines_are_short() {
    for path in [files("page"), files("tests/page")].concat() {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        for (at, line) in (1..).zip(text.lines()) {
            let place = format!("{}:{at}", path.display());
            let is_drawing = path.extension().is_some_and(|ending| ending == "svg");
            assert!(is_drawing || line.chars().count() <= 100, "{place} is too long");
            assert!(!line.ends_with([' ', '\t']), "{place} ends with a blank");
        }
    }
}
