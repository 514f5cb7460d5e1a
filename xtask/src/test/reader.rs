//! Reads what programs of tests say.

use std::collections::BTreeMap;

use super::count::{Count, Failure, padded, padded_failures};

/// Reads what programs of tests say, line after line.
#[derive(Default)]
pub(super) struct Reader {
    /// The program's place: a source file, or a package whose comments are tested.
    place: String,
    /// The tests of the program that runs which failed.
    failed: Vec<String>,
    /// What these said: the program tells it after their outcomes.
    said: BTreeMap<String, String>,
    /// The test whose words the lines are now.
    telling: Option<String>,
    /// The tests of the program that runs which could not, each with why.
    skipped: Vec<String>,
    /// How many of them returned, so that the program counts them as passed.
    returned: u64,
    pub(super) count: Count,
}

impl Reader {
    pub(super) fn of(place: String) -> Reader {
        Reader { place, ..Reader::default() }
    }

    pub(super) fn read_all(&mut self, said: &str) {
        said.lines().for_each(|line| self.read(line));
    }

    pub(super) fn read(&mut self, line: &str) {
        if let Some(package) = line.trim_start().strip_prefix("Doc-tests ") {
            self.place = format!("{package} (in comments)");
        } else if let Some(test) = line.strip_prefix("skipped ") {
            self.skipped.push(test.to_owned());
            self.returned += 1;
        } else if let Some(test) = ignored(line) {
            self.skipped.push(test);
        } else if let Some(test) = failed(line) {
            self.failed.push(test);
        } else if let Some(test) = heading(line) {
            self.telling = Some(test);
        } else if line == "failures:" {
            self.telling = None;
        } else if let Some(summary) = Summary::read(line) {
            self.take_in(&summary);
        } else if let Some(test) = &self.telling {
            let said = self.said.entry(test.clone()).or_default();
            said.push_str(line);
            said.push('\n');
        }
    }

    fn take_in(&mut self, summary: &Summary) {
        let place = &self.place;
        let returned = std::mem::take(&mut self.returned);
        let skipped = std::mem::take(&mut self.skipped);
        let skipped = padded(skipped, summary.ignored + returned, place);
        let mut said = std::mem::take(&mut self.said);
        let failures = self.failed.drain(..).map(|test| {
            let said = said.remove(&test).unwrap_or_default();
            Failure::new(test, place, said)
        });
        let failed = padded_failures(failures.collect(), summary.failed, place);
        let passed = summary.passed.saturating_sub(returned);
        let count = Count { passed, failed, skipped, ..Count::default() };
        self.count = std::mem::take(&mut self.count).and(count);
    }
}

/// The test in `---- name stdout ----` or, as libtest-mimic writes it, `---- name ----`.
fn heading(line: &str) -> Option<String> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name).to_owned())
}

/// The test and its outcome in `test name ... ok`. libtest-mimic fills names up.
pub(super) fn outcome(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.trim(), outcome))
}

/// The test in `test name ... FAILED`.
fn failed(line: &str) -> Option<String> {
    let (name, outcome) = outcome(line)?;
    outcome.starts_with("FAILED").then(|| name.to_owned())
}

/// The test in `test name ... ignored, why` or, as libtest-mimic writes it,
/// `test [why] name ... ignored`.
fn ignored(line: &str) -> Option<String> {
    let (name, outcome) = outcome(line)?;
    let why = outcome.strip_prefix("ignored")?.trim_start_matches(", ");
    match name.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((why, name)) => Some(format!("{}: {why}", name.trim())),
        None if why.is_empty() => Some(name.to_owned()),
        None => Some(format!("{name}: {why}")),
    }
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; …; finished in 1.23s`
struct Summary {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Summary {
    fn read(line: &str) -> Option<Summary> {
        let rest = line.strip_prefix("test result: ")?;
        let number = |what: &str| {
            let before = rest.split(what).next()?;
            before.split([' ', '.']).rfind(|word| !word.is_empty())?.parse().ok()
        };
        let (passed, failed) = (number(" passed")?, number(" failed")?);
        Some(Summary { passed, failed, ignored: number(" ignored")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_of_tests_say_is_read() {
        let mut reader = Reader::of("tests/e2e/tests/daily.rs".to_owned());
        for line in [
            "running 3 tests",
            "test one ... FAILED",
            "failures:",
            "",
            "---- one stdout ----",
            "thread 'one' panicked",
            "at the end",
            "",
            "failures:",
            "    one",
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s",
            "test two ... ignored, takes minutes",
            "test [no kernel] three   ... ignored",
            "test four ... ",
            "skipped four: it is Monday",
            "ok",
            "test result: ok. 7 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 12.50s",
            "   Doc-tests wire",
            "test result: ok. 1 passed; 0 failed; 1 ignored",
        ] {
            reader.read(line);
        }
        let daily = "tests/e2e/tests/daily.rs";
        let skipped = [
            "two: takes minutes",
            "three: no kernel",
            "four: it is Monday",
            "a test of wire (in comments)",
        ];
        let skipped = skipped.map(str::to_owned).to_vec();
        let failed = vec![
            Failure::new("one", daily, "thread 'one' panicked\nat the end\n\n"),
            Failure::new("a test", daily, ""),
            Failure::new("a test", daily, ""),
        ];
        assert_eq!(reader.count, Count { passed: 19, failed, skipped, ..Count::default() });
    }
}
