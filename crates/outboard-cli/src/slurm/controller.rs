//! Slurm's controller, by Slurm's own commands.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use outboard_pool::words::NodeName;
use outboard_wire::Code;

use super::limit;
use crate::failure::Failure;

/// States of jobs that may use what they have: all others have ended, or are yet to begin (anew).
const LIVE: [&str; 6] = ["RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"];

/// What a command of Slurm's prints.
fn ask(program: &str, args: &[&str]) -> Result<String, Failure> {
    let failed = |reason: String| {
        let sentence = format!("`{program} {}` failed: {reason}", args.join(" "));
        let help = "is slurmctld running, and are PATH and SLURM_CONF set for this process?";
        Failure::new(Code::CannotStartProgram, sentence, help)
    };
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn strange(what: &str, text: &str) -> Failure {
    let sentence = format!("Slurm says something strange of {what}: `{}`", text.trim());
    Failure::new(Code::CannotStartProgram, sentence, "report it with Slurm's version")
}

/// A job's time limit in seconds; none is no limit.
pub(super) fn time_limit(job: &str) -> Result<Option<u32>, Failure> {
    let text = ask("squeue", &["--noheader", "--array", "--jobs", job, "--format=%A %l"])?;
    limit_in(&text, job)
}

/// By the number of its first task, Slurm knows a whole array.
fn limit_in(text: &str, job: &str) -> Result<Option<u32>, Failure> {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(' '));
    let found = lines.find(|(number, _)| *number == job);
    let limit = found.and_then(|(_, limit)| limit::seconds(limit).ok());
    limit.ok_or_else(|| strange("the job's time limit", text))
}

/// The names in a list of nodes.
pub(super) fn nodes(list: &str) -> Result<BTreeSet<NodeName>, Failure> {
    nodes_in(&ask("scontrol", &["show", "hostnames", list])?)
}

fn nodes_in(text: &str) -> Result<BTreeSet<NodeName>, Failure> {
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty());
    names.map(|name| name.parse().map_err(|_| strange("the job's nodes", name))).collect()
}

/// Jobs, each with the seconds that are left of its time, in which it is not suspended; none is no
/// limit.
pub(super) type Jobs = BTreeMap<u32, Option<u32>>;

/// The jobs that may use what they have.
pub(super) fn live_jobs() -> Result<Jobs, Failure> {
    let text = ask("squeue", &["--noheader", "--all", "--array", "--format=%A %T %L"])?;
    live_in(&text)
}

fn live_in(text: &str) -> Result<Jobs, Failure> {
    let mut live = Jobs::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let mut word = || words.next().ok_or_else(|| strange("a job", line));
        let (number, state, left) = (word()?, word()?, word()?);
        let number = number.parse().map_err(|_| strange("a job", line))?;
        if LIVE.contains(&state) {
            // A job at its limit has left what Slurm does not write as a time.
            live.insert(number, limit::seconds(left).unwrap_or(Some(0)));
        }
    }
    Ok(live)
}

/// The cluster's name.
pub(super) fn cluster() -> Result<String, Failure> {
    let text = ask("scontrol", &["show", "config"])?;
    let entry = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "ClusterName").then(|| value.trim().to_owned())
    };
    text.lines().find_map(entry).ok_or_else(|| strange("its configuration", "no ClusterName"))
}

/// Has it read its configuration again.
pub(super) fn reconfigure() -> Result<(), Failure> {
    ask("scontrol", &["reconfigure"]).map(drop)
}

/// Tells a person who waits for `srun` or `salloc`.
pub(super) fn notify(job: &str, sentence: &str) -> Result<(), Failure> {
    ask("scontrol", &["notify", job, &format!("outboard: {sentence}")]).map(drop)
}

/// Writes beside the job what `scontrol show job` shows of it.
pub(super) fn note(job: &str, sentence: &str) -> Result<(), Failure> {
    let note = format!("AdminComment=outboard: {sentence}");
    ask("scontrol", &["update", &format!("JobId={job}"), &note]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_the_job() {
        let text = "7 1:00\n8 2:00\n6 UNLIMITED\n";
        assert_eq!(limit_in(text, "8").unwrap(), Some(120));
        assert_eq!(limit_in(text, "6").unwrap(), None);
        assert!(limit_in(text, "9").is_err() && limit_in("", "9").is_err());
    }

    #[test]
    fn nodes_are_lines() {
        let nodes = nodes_in("n1\nn10\nlogin-2.site\n").unwrap();
        assert_eq!(
            nodes.iter().map(NodeName::as_str).collect::<Vec<_>>(),
            ["login-2.site", "n1", "n10"]
        );
        let error = nodes_in("n[1-3]\n").unwrap_err().to_string();
        assert!(error.contains("the job's nodes"), "{error}");
    }

    #[test]
    fn jobs_that_have_begun_and_not_ended_are_live() {
        let text = "1 RUNNING 1:00\n2 PENDING 9:00\n3 COMPLETING 0:00\n4 CONFIGURING UNLIMITED\n \
            5 SUSPENDED 1-00:00:00\n6 TIMEOUT INVALID\n7 RUNNING INVALID\n";
        let live = [(1, Some(60)), (4, None), (5, Some(86400)), (7, Some(0))];
        assert_eq!(live_in(text).unwrap(), Jobs::from(live));
        assert!(live_in("").unwrap().is_empty());
        for text in ["1_[2-3] PENDING 1:00", "slurm is away", "1 RUNNING"] {
            assert!(live_in(text).is_err(), "{text}");
        }
    }
}
