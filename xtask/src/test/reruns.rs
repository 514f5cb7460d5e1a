//! Tests that failed are run again: a test that fails once more is a fault, one that passes each
//! time is unsteady.

use anyhow::Result;

use super::count::{Count, Failure, Unsteady};
use crate::util::step;

/// How often a test that failed is run again.
const RERUNS: usize = 3;

/// So many faults make a run red beyond doubt: what else failed is not run again.
const ENOUGH: usize = 5;

/// Tests of these kinds are red at their first failure: an attack that succeeds now and then
/// succeeds, and an order or a quota that is broken once is broken. A test is of a kind if its name
/// or its file's has one of the words.
const RED_AT_ONCE: [(&str, &[&str]); 3] = [
    ("hostile", &["hostile", "sandbox", "confined", "damage", "damaged", "stolen", "stranger"]),
    ("order", &["order", "orders", "ordered"]),
    ("quotas", &["quota", "quotas", "budget", "limits"]),
];

/// What a test did that was run again.
pub(crate) struct Attempt {
    pub(crate) passed: bool,
    pub(crate) said: String,
}

impl Attempt {
    /// Of a run of one test, and what it said.
    pub(crate) fn of(run: Result<(Count, String)>) -> Attempt {
        match run {
            Ok((count, said)) => Attempt { passed: count.is_good(), said },
            Err(error) => Attempt { passed: false, said: format!("{error:#}") },
        }
    }
}

/// The count with each of its failures judged. `again` runs a failed test again, alone.
pub(crate) fn judge(mut count: Count, mut again: impl FnMut(&Failure) -> Attempt) -> Count {
    for failure in std::mem::take(&mut count.failed) {
        let judged = if count.failed.len() < ENOUGH {
            rerun(&failure, &mut again)
        } else {
            Err(format!("\n(not run again: {ENOUGH} tests are known to be broken)\n"))
        };
        match judged {
            Ok(said_later) => {
                count.passed += 1;
                count.unsteady.push(Unsteady { failure, said_later });
            }
            Err(failed_again) => {
                let said = format!("{}{failed_again}", failure.said);
                count.failed.push(Failure { said, ..failure });
            }
        }
    }
    count
}

/// A step that is one test.
pub(super) fn judge_whole(name: &str, run: impl Fn() -> Result<Count>) -> Count {
    let mut found = Count::default();
    let mut attempt = || match run() {
        Ok(count) => {
            found = count;
            Attempt { passed: true, said: String::new() }
        }
        Err(error) => Attempt { passed: false, said: format!("{error:#}") },
    };
    let first = attempt();
    if first.passed {
        return found;
    }
    eprintln!("error: {}", first.said);
    let judged = judge(Count::failed(Failure::new(name, "", first.said)), |_| attempt());
    if judged.failed.is_empty() { found.and(Count { passed: 0, ..judged }) } else { judged }
}

/// Runs a test again, alone; what it said at last, or why it is a fault.
fn rerun(failure: &Failure, again: &mut impl FnMut(&Failure) -> Attempt) -> Result<String, String> {
    if let Some(kind) = red_at_once(&failure.to_string()) {
        return Err(format!("\n(not run again: tests of the kind «{kind}» fail once only)\n"));
    }
    let mut last = String::new();
    for time in 1..=RERUNS {
        step(&format!("running {failure} again, alone ({time} of {RERUNS})"));
        let Attempt { passed, said } = again(failure);
        if !passed {
            eprintln!("{said}");
            return Err(format!("\n(run again, time {time} of {RERUNS}, it said:)\n{said}"));
        }
        last = said;
    }
    Ok(last)
}

/// The kind of tests that the test belongs to, if it is one of [`RED_AT_ONCE`].
fn red_at_once(name: &str) -> Option<&'static str> {
    let words: Vec<&str> = name.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    let is_of = |(_, of_kind): &&(&str, &[&str])| of_kind.iter().any(|word| words.contains(word));
    RED_AT_ONCE.iter().find(is_of).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count of a failure, and how often it was run again, if reruns pass as listed.
    fn judged(test: &str, passes: &[bool]) -> (Count, usize) {
        let mut times = 0;
        let failure = Failure::new(test, "tests/daily.rs", "no");
        let count = judge(Count::failed(failure), |_| {
            times += 1;
            Attempt { passed: passes[times - 1], said: format!("time {times}") }
        });
        (count, times)
    }

    #[test]
    fn a_test_that_passes_each_time_is_unsteady_and_one_that_fails_again_is_a_fault() {
        let (count, times) = judged("comes", &[true, true, true]);
        assert_eq!((count.passed, count.failed.len(), times), (1, 0, 3));
        assert_eq!(count.unsteady[0].failure.to_string(), "comes, in tests/daily.rs");
        assert_eq!(count.unsteady[0].failure.said, "no");
        assert_eq!(count.unsteady[0].said_later, "time 3");
        for (passes, ran) in
            [(&[false][..], 1), (&[true, false][..], 2), (&[true, true, false][..], 3)]
        {
            let (count, times) = judged("comes", passes);
            assert_eq!((count.passed, count.unsteady.len(), times), (0, 0, ran));
            assert!(count.failed[0].said.ends_with(&format!("time {ran}")), "{count:?}");
        }
    }

    #[test]
    fn a_test_that_is_skipped_when_it_is_run_again_has_not_passed() {
        let of = |count| Attempt::of(Ok((count, String::new()))).passed;
        assert!(of(Count::ONE) && !of(Count::skipped("one: no root".into())));
        assert!(!of(Count::default()));
    }

    #[test]
    fn a_run_that_is_red_beyond_doubt_runs_nothing_again() {
        let failures = (0..ENOUGH + 3).map(|number| Failure::new(format!("t{number}"), "", ""));
        let mut times = 0;
        let count = judge(Count { failed: failures.collect(), ..Count::default() }, |_| {
            times += 1;
            Attempt { passed: false, said: String::new() }
        });
        assert_eq!((count.failed.len(), times), (ENOUGH + 3, ENOUGH));
    }

    #[test]
    fn some_kinds_of_tests_are_red_at_once() {
        for test in ["a_hostile_peer", "arrives_in_order", "module::quotas_are_kept"] {
            let (count, times) = judged(test, &[]);
            assert_eq!((count.failed.len(), times), (1, 0), "{test}");
        }
        let of = |test: &str, place: &str| red_at_once(&Failure::new(test, place, "").to_string());
        assert_eq!(of("gets_out", "tests/e2e/tests/hostile_client.rs"), Some("hostile"));
        assert_eq!(of("order in shared memory", "tests/e2e/tests/suite.rs"), Some("order"));
        assert_eq!(of("memory", "tests/e2e/tests/limits.rs"), Some("quotas"));
        assert_eq!(of("borders_are_kept", "tests/e2e/tests/daily.rs"), None);
    }

    #[test]
    fn a_step_that_is_one_test_is_run_again_as_a_whole() {
        let runs = std::cell::Cell::new(0);
        let from = |first_good: u32| {
            runs.set(0);
            let run = || {
                runs.set(runs.get() + 1);
                if runs.get() < first_good {
                    anyhow::bail!("not yet")
                } else {
                    Ok(Count::passed(7))
                }
            };
            judge_whole("counts", run)
        };
        assert_eq!((from(1), runs.get()), (Count::passed(7), 1));
        let unsteady = from(2);
        assert_eq!((unsteady.passed, unsteady.unsteady.len(), runs.get()), (7, 1, 4));
        let failed = from(3);
        assert_eq!(
            (failed.passed, failed.failed[0].to_string(), runs.get()),
            (0, "counts".into(), 2)
        );
    }
}
