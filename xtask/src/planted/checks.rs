//! That the kept faults are what they say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use outboard_test_support::skip;

use super::fault::{END_TO_END, Fault, KINDS, Search, Target, folder};
use crate::util::{self, root};

fn faults() -> Vec<Fault> {
    Fault::all().unwrap_or_else(|error| panic!("{error:#}"))
}

/// The text of the source files in a folder or file.
fn text(of: &Path) -> String {
    if of.is_dir() {
        let entries = fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path());
        return entries.map(|path| text(&path)).collect();
    }
    let is_source =
        of.extension().is_some_and(|extension| extension == "rs" || extension == "toml");
    if is_source { fs::read_to_string(of).unwrap() } else { String::new() }
}

fn package(search: &Search) -> PathBuf {
    match search.package.as_str() {
        END_TO_END => root().join("tests/e2e"),
        package => root().join("crates").join(package),
    }
}

/// Whether there is such a test.
fn is_there(search: &Search) -> bool {
    let (folder, filter) = (package(search), search.filter.as_str());
    let tests = folder.join("tests");
    let names = |text: String, test: &str| {
        test.is_empty()
            || text.contains(&format!("fn {test}("))
            || text.contains(&format!("\"{test}\""))
    };
    match &search.target {
        Target::Library | Target::Binary => names(text(&folder.join("src")), filter),
        Target::Module => filter
            .split_once("::")
            .is_some_and(|(module, test)| names(text(&tests.join(format!("{module}.rs"))), test)),
        Target::Test(_) if search.package == END_TO_END => {
            let programs = root().join("tests/programs");
            let program = filter.split(' ').next().unwrap_or_default();
            programs.join(format!("{program}.cu")).is_file()
                || text(&programs.join("programs.toml")).contains(&format!("[{program}]\n"))
        }
        Target::Test(name) => {
            let file = tests.join(format!("{name}.rs"));
            names(text(if file.is_file() { &file } else { &tests }), filter)
        }
    }
}

#[test]
fn each_fault_has_a_sentence_and_tests_that_there_are() {
    for fault in faults() {
        let name = &fault.name;
        assert!(fault.sentence.ends_with('.'), "{name}: it is no sentence");
        for search in &fault.found_by {
            assert!(package(search).is_dir(), "{name}: there is no package {}", search.package);
            assert!(is_there(search), "{name}: there is no test of {search}");
        }
    }
}

#[test]
fn there_are_many_of_all_kinds_in_all_crates() {
    let faults = faults();
    assert!(faults.len() >= 40, "{} faults", faults.len());
    let kinds: BTreeSet<&str> = faults.iter().map(|fault| fault.kind.as_str()).collect();
    assert_eq!(kinds.len(), KINDS.len(), "each kind is there: {kinds:?}");
    let end_to_end = |fault: &&Fault| fault.found_by.iter().any(Search::needs_installation);
    assert!(faults.iter().filter(end_to_end).count() >= 14);
    let mut crates = BTreeSet::new();
    for fault in &faults {
        let patch = fs::read_to_string(&fault.path).unwrap();
        let changed = patch.lines().filter_map(|line| line.strip_prefix("+++ b/crates/"));
        let changed: Vec<String> =
            changed.filter_map(|path| Some(path.split_once('/')?.0.to_owned())).collect();
        assert!(!changed.is_empty(), "{} changes no crate", fault.name);
        crates.extend(changed);
    }
    assert!(crates.len() >= 18, "{crates:?}");
}

#[test]
fn each_applies() {
    if !root().join(".git").exists() {
        skip!("this is no checkout, and git applies patches in one");
    }
    for fault in faults() {
        let mut git = Command::new("git");
        git.arg("-C").arg(root()).args(["apply", "--check"]).arg(&fault.path);
        if let Err(error) = util::said(&mut git) {
            panic!("{} does not apply any more; change the patch: {error:#}", fault.name);
        }
    }
    let strange = |path: &PathBuf| path.extension().is_none_or(|extension| extension != "patch");
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(entries.filter(strange).collect::<Vec<_>>(), Vec::<PathBuf>::new());
}
