//! Where the time of a test run goes: what programs of tests say, and what the processes that ended
//! have used.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::count::{Count, Failure, padded, padded_failures};

/// How many files of tests the table of the slowest has.
const SHOWN: usize = 10;

/// A program of tests.
#[derive(Debug, PartialEq)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) taken: Duration,
}

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
    pub(super) files: Vec<File>,
    pub(super) count: Count,
}

impl Reader {
    pub(super) fn of(place: String) -> Reader {
        Reader { place, ..Reader::default() }
    }

    /// Takes in what another one has read.
    pub(super) fn add(&mut self, other: Reader) {
        self.files.extend(other.files);
        self.count = std::mem::take(&mut self.count).and(other.count);
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
        self.files.push(File { name: self.place.clone(), taken: summary.taken });
    }
}

/// The test in `---- name stdout ----` or, as libtest-mimic writes it, `---- name ----`.
fn heading(line: &str) -> Option<String> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name).to_owned())
}

/// The test in `test name ... FAILED`.
fn failed(line: &str) -> Option<String> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    outcome.starts_with("FAILED").then(|| name.trim().to_owned())
}

/// The test in `test name ... ignored, why` or, as libtest-mimic writes it,
/// `test [why] name ... ignored`.
fn ignored(line: &str) -> Option<String> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let why = outcome.strip_prefix("ignored")?.trim_start_matches(", ");
    match name.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((why, name)) => Some(format!("{}: {why}", name.trim())),
        None if why.is_empty() => Some(name.trim().to_owned()),
        None => Some(format!("{}: {why}", name.trim())),
    }
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; …; finished in 1.23s`
struct Summary {
    passed: u64,
    failed: u64,
    ignored: u64,
    taken: Duration,
}

impl Summary {
    fn read(line: &str) -> Option<Summary> {
        let rest = line.strip_prefix("test result: ")?;
        let number = |what: &str| {
            let before = rest.split(what).next()?;
            before.split([' ', '.']).rfind(|word| !word.is_empty())?.parse().ok()
        };
        let seconds = rest
            .split("finished in ")
            .nth(1)
            .and_then(|text| text.trim().trim_end_matches('s').parse().ok());
        let taken = Duration::try_from_secs_f64(seconds.unwrap_or(0.0)).unwrap_or_default();
        let (passed, failed) = (number(" passed")?, number(" failed")?);
        Some(Summary { passed, failed, ignored: number(" ignored")?, taken })
    }
}

/// The slowest files of tests, each with its share of what all of them took.
pub(super) fn slowest(files: &[File]) -> String {
    let all: f64 = files.iter().map(|file| file.taken.as_secs_f64()).sum();
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by_key(|file| std::cmp::Reverse(file.taken));
    let mut text = String::new();
    for File { name, taken } in sorted.into_iter().take(SHOWN).filter(|file| !file.taken.is_zero())
    {
        let seconds = taken.as_secs_f64();
        let _ = writeln!(text, "{name:<40} {seconds:>8.1} s  {:>3.0} %", 100.0 * seconds / all);
    }
    text
}

/// The processor time of all processes that this one has started and that have ended.
pub(super) fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = of_children(&stat).unwrap_or(0);
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// User's and system's ticks of ended children: the 16th and 17th field, counted from the process's
/// number. The second is a name in parentheses.
fn of_children(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Minutes and seconds, as people say them.
pub(super) fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{} min {:02} s", seconds / 60, seconds % 60)
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
        let file = |name: &str, milliseconds| File {
            name: name.to_owned(),
            taken: Duration::from_millis(milliseconds),
        };
        let daily = "tests/e2e/tests/daily.rs";
        let wanted = [file(daily, 50), file(daily, 12_500), file("wire (in comments)", 0)];
        assert_eq!(reader.files, wanted);
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
        let table = slowest(&reader.files);
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines.len() == 2
                && lines[0].starts_with("tests/e2e/tests/daily.rs ")
                && lines[0].ends_with("12.5 s  100 %"),
            "{table}"
        );
    }

    #[test]
    fn children_s_time_is_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 500 60 11 22 20 0 1 0 9";
        assert_eq!(of_children(stat), Some(33));
        assert_eq!(of_children(""), None);
        let before = processor_time();
        let mut busy = std::process::Command::new("sh");
        busy.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done"]);
        assert!(busy.status().is_ok_and(|status| status.success()));
        assert!(processor_time() > before);
    }
}
