//! What can be said of a program of tests that ended before all its tests did: it hung, or a test
//! took it down. Which tests had begun it does not say, but it begins them in order, as many at
//! once as there are processors.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use super::reader;
use crate::util;

/// A program that was cut off.
#[derive(Debug, PartialEq)]
pub(super) struct Cut {
    /// The tests that had begun: one of them is to blame.
    pub(super) begun: Vec<String>,
    /// The tests that had not.
    pub(super) rest: Vec<String>,
    /// The outcomes of those that had ended: how many passed, failed and were ignored.
    outcomes: [usize; 3],
}

impl Cut {
    /// Of a program that was to run these tests, after what it said; none if it ran them all.
    pub(super) fn find(said: &str, tests: impl FnOnce() -> Vec<String>) -> Option<Cut> {
        if said.lines().any(|line| line.starts_with("test result: ")) {
            return None;
        }
        let ended = ended_tests(said);
        let mut begun = tests();
        begun.retain(|test| !ended.contains_key(test.as_str()));
        let rest = begun.split_off(begun.len().min(util::processors()));
        let count = |word: &str| ended.values().filter(|how| how.starts_with(word)).count();
        Some(Cut { begun, rest, outcomes: ["ok", "FAILED", "ignored"].map(count) })
    }

    /// As the program itself would have said it.
    pub(super) fn report(&self, why: &str) -> String {
        let Cut { begun, rest, outcomes: [passed, failed, ignored] } = self;
        let mut text = String::from("\n");
        begun
            .iter()
            .for_each(|test| text += &format!("test {test} ... FAILED: it has not ended\n"));
        text += "\nfailures:\n\n";
        begun.iter().for_each(|test| text += &format!("---- {test} ----\n{why}\n\n"));
        text += &format!("failures:\nThe program was cut off before {} tests: {why}\n", rest.len());
        let failed = failed + begun.len();
        text + &format!(
            "test result: FAILED. {passed} passed; {failed} failed; {ignored} ignored\n"
        )
    }
}

/// The tests whose outcome has been said, with the outcome.
pub(super) fn ended_tests(said: &str) -> HashMap<&str, &str> {
    said.lines().filter_map(reader::outcome).filter(|(_, outcome)| !outcome.is_empty()).collect()
}

/// The tests of a program, in the order in which it begins them.
pub(super) fn list(program: &Path, folder: &Path, env: &[(&str, &str)]) -> Vec<String> {
    let mut command = Command::new(program);
    command.envs(env.iter().copied());
    let output = command.current_dir(folder).args(["--list", "--format", "terse"]).output();
    let said = output.map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    said.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::reader::Reader;

    #[test]
    fn the_tests_of_a_program_are_listed_and_their_outcomes_read() {
        let this = std::env::current_exe().unwrap();
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let listed = list(&this, &util::root(), &[]);
        assert!(listed.iter().any(|test| *test == name || name == "main"));
        let said = "running 2 tests\ntest one   ... ok\ntest two ... \ntest three ... FAILED\n";
        assert_eq!(ended_tests(said), HashMap::from([("one", "ok"), ("three", "FAILED")]));
    }

    #[test]
    fn tests_that_had_begun_are_to_blame_and_the_rest_is_left() {
        let names = |range: std::ops::Range<usize>| -> Vec<String> {
            range.map(|number| format!("test_{number}")).collect()
        };
        let at_once = util::processors();
        let said = "test test_0 ... ok\ntest test_1 ... FAILED\ntest test_2 ... \n";
        let all = || names(0..at_once + 4);
        let cut = Cut::find(said, all).unwrap();
        assert_eq!(cut.begun, names(2..at_once + 2));
        assert_eq!(cut.rest, names(at_once + 2..at_once + 4));
        let mut reader = Reader::of("tests/daily.rs".into());
        reader.read_all(&format!("{said}{}", cut.report("signal 11")));
        assert_eq!((reader.count.passed, reader.count.failed.len()), (1, at_once + 1));
        assert_eq!(reader.count.failed[1].said, "signal 11\n\n");
        assert_eq!(Cut::find("test result: ok. 1 passed", all), None);
    }
}
