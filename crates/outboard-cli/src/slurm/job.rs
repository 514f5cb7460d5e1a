//! A job, as Slurm tells its prologs and epilogs of it: by variables.

use miette::Result;
use outboard_pool::words::{GroupName, OwnerName, Purpose, Request, Size};
use outboard_wire::Code;

use super::{LICENSE, licenses};
use crate::failure::Failure;

/// The group of jobs without an account, as of owners whom the broker does not know.
const NO_ACCOUNT: &str = "everybody";
/// What the SPANK plug-in says of each device's memory (`--remote-gpu-memory`).
const MEMORY: &str = "SPANK_OUTBOARD_GPU_MEMORY";

/// A variable of this process.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty() && text != "(null)")
}

fn needed(name: &'static str, get: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    get(name).ok_or_else(|| {
        let sentence = format!("{name} is not set: this is to be run by Slurm");
        Failure::new(Code::BadUsage, sentence, "deploy/slurm/README.md says how Slurm calls it")
    })
}

fn wrong(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::BadUsage, format!("{what}: {error}"), "correct what the job asks for")
}

/// Which job it is.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: String,
    pub(super) purpose: Purpose,
}

impl Job {
    /// The one for which Slurm has started this process.
    pub(super) fn this() -> Result<Job, Failure> {
        Job::of(variable)
    }

    fn of(get: impl Fn(&str) -> Option<String>) -> Result<Job, Failure> {
        let number = needed("SLURM_JOB_ID", &get)?;
        let cluster = needed("SLURM_CLUSTER_NAME", &get)?;
        let purpose = format!("{}{number}", prefix(&cluster));
        let purpose = purpose.parse().map_err(|error| wrong("the cluster's name", error))?;
        Ok(Job { number, purpose })
    }
}

/// How the purposes of all jobs of a cluster begin.
pub(super) fn prefix(cluster: &str) -> String {
    format!("slurm.{cluster}.")
}

/// What the job is to have, if it has licences.
pub(super) fn wanted() -> Result<Option<Request>, Failure> {
    wanted_by(variable)
}

fn wanted_by(get: impl Fn(&str) -> Option<String>) -> Result<Option<Request>, Failure> {
    let list = get("SLURM_JOB_LICENSES").unwrap_or_default();
    let devices = licenses::count(&list, LICENSE).map_err(|error| wrong("licences", error))?;
    if devices == 0 {
        return Ok(None);
    }
    let owner: OwnerName = needed("SLURM_JOB_USER", &get)?
        .parse()
        .map_err(|error| wrong("the name of the job's user", error))?;
    let group: GroupName = get("SLURM_JOB_ACCOUNT")
        .unwrap_or_else(|| NO_ACCOUNT.into())
        .parse()
        .map_err(|error| wrong("the job's account", error))?;
    let memory: Option<Size> = get(MEMORY)
        .map(|text| text.parse())
        .transpose()
        .map_err(|error| wrong("--remote-gpu-memory", error))?;
    let mut request = Request::new(owner, group, devices);
    request.memory_bytes = memory.map_or(0, |Size(bytes)| bytes);
    Ok(Some(request))
}

/// The nodes of the job, as Slurm writes them: `n[1-3],m7`.
pub(super) fn nodes() -> Result<String, Failure> {
    needed("SLURM_JOB_NODELIST", variable)
}

/// The node and the user for whom a node's prolog runs.
pub(super) struct Local {
    pub(super) node: String,
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Local {
    pub(super) fn this() -> Result<Local, Failure> {
        let number = |name: &'static str| {
            needed(name, variable)?.parse().map_err(|error| wrong(name, error))
        };
        Ok(Local { node: node()?, user: number("SLURM_JOB_UID")?, group: number("SLURM_JOB_GID")? })
    }
}

/// The node's name: several may be on one machine.
pub(super) fn node() -> Result<String, Failure> {
    needed("SLURMD_NODENAME", variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(set: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        |name| set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_job_is_named_with_its_cluster() {
        let job = Job::of(get(&[("SLURM_JOB_ID", "12"), ("SLURM_CLUSTER_NAME", "blue")])).unwrap();
        assert_eq!(job.purpose.as_str(), "slurm.blue.12");
        let error = Job::of(get(&[("SLURM_JOB_ID", "12")])).unwrap_err();
        assert!(error.to_string().contains("SLURM_CLUSTER_NAME"), "{error}");
    }

    #[test]
    fn licences_are_devices_and_the_user_is_the_owner() {
        let of = |set| wanted_by(get(set)).unwrap();
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("SLURM_JOB_LICENSES", "matlab:1")]), None);
        let request =
            of(&[("SLURM_JOB_LICENSES", "rgpu:2"), ("SLURM_JOB_USER", "ada"), (MEMORY, "20G")])
                .unwrap();
        assert_eq!((request.devices, request.memory_bytes), (2, 20 << 30));
        assert_eq!((request.owner.as_str(), request.group.as_str()), ("ada", NO_ACCOUNT));
        let request = of(&[
            ("SLURM_JOB_LICENSES", "rgpu"),
            ("SLURM_JOB_USER", "ada"),
            ("SLURM_JOB_ACCOUNT", "vision"),
        ]);
        assert_eq!(request.unwrap().group.as_str(), "vision");
    }

    #[test]
    fn what_cannot_be_is_refused_by_a_sentence() {
        let licences = ("SLURM_JOB_LICENSES", "rgpu:2");
        let user = ("SLURM_JOB_USER", "ada");
        let set: &'static [_] = Box::leak(Box::new([licences, user, (MEMORY, "much")]));
        let error = wanted_by(get(set)).unwrap_err();
        assert!(error.to_string().contains("--remote-gpu-memory"), "{error}");
        let set: &'static [_] = Box::leak(Box::new([licences, ("SLURM_JOB_USER", "a b")]));
        assert!(wanted_by(get(set)).is_err());
    }
}
