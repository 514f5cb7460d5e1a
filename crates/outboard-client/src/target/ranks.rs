//! Lists of which each process of a job uses one device: `gpu[1-4]:by-rank`.

use std::ffi::OsString;
use std::fmt;

use super::{Target, TargetError, Targets};

/// By which number a process chooses its device of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByRank {
    /// Its rank in the job: all processes of the job share the list.
    Job,
    /// Its rank on its node: each node has a list.
    Node,
}

/// A process's number, from 0, by these variables of what has started it. The first that is set
/// counts: a job of Slurm may start Open MPI's `mpirun`, whose ranks then have Slurm's variables of
/// the one task that `mpirun` itself or its daemon is.
const OF_JOB: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"];
const OF_NODE: [&str; 5] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];

/// The number of processes that were started together, by the launchers that say it, beside the
/// number of each.
const SIZES: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// This process's rank and the number of processes that were started with it, if a launcher has
/// started it.
pub fn of_job() -> Option<(u32, u32)> {
    let number = |name: &str| std::env::var(name).ok()?.trim().parse::<u32>().ok();
    let launcher = SIZES.iter().find(|(rank, _)| std::env::var_os(rank).is_some());
    launcher.and_then(|(rank, size)| Some((number(rank)?, number(size)?)))
}

impl ByRank {
    const ALL: [ByRank; 2] = [ByRank::Job, ByRank::Node];

    /// What stands behind the list.
    fn suffix(self) -> &'static str {
        match self {
            ByRank::Job => ":by-rank",
            ByRank::Node => ":by-local-rank",
        }
    }

    /// The list without such an ending, and what the ending says.
    pub(super) fn of_list(list: &str) -> (&str, Option<ByRank>) {
        let ending =
            |by: &ByRank| list.trim_end().strip_suffix(by.suffix()).map(|rest| (rest, Some(*by)));
        ByRank::ALL.iter().find_map(ending).unwrap_or((list, None))
    }

    fn variables(self) -> &'static [&'static str] {
        match self {
            ByRank::Job => &OF_JOB,
            ByRank::Node => &OF_NODE,
        }
    }

    /// The number of this process, if what has started it gives it one.
    pub fn rank(self) -> Result<Option<u32>, TargetError> {
        self.rank_among(|name| std::env::var_os(name))
    }

    fn rank_among(
        self,
        given: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<u32>, TargetError> {
        let set = |name: &'static str| Some((name, given(name)?));
        let Some((name, value)) = self.variables().iter().copied().find_map(set) else {
            return Ok(None);
        };
        let number = value.to_str().and_then(|text| text.trim().parse().ok());
        let wrong = || TargetError::BadRank { name, value: value.to_string_lossy().into_owned() };
        number.map(Some).ok_or_else(wrong)
    }

    /// Why a process without a number has no device.
    pub(crate) fn unknown(self) -> TargetError {
        TargetError::NoRank { suffix: self.suffix(), variables: self.variables() }
    }
}

impl fmt::Display for ByRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.suffix())
    }
}

/// What a rank uses of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This device.
    Device(Target),
    /// The device with this number of the server, which counts its devices round and round.
    Nth(Target, u32),
}

impl Targets {
    /// By which rank each process chooses its device, if it does.
    pub fn by_rank(&self) -> Option<ByRank> {
        self.by_rank
    }

    /// What a rank uses: an entry of the list, and the first again behind the last. Of a server of
    /// which no device is named, it uses the first in the first round, the second in the second.
    pub(crate) fn of_rank(&self, rank: u32) -> Choice {
        let entries = self.entries.len();
        let (position, round) = (rank as usize % entries, rank as usize / entries);
        let place = self.entries[position].place();
        let server = &self.servers[place];
        if server.devices.is_empty() {
            return match u32::try_from(round) {
                Ok(0) | Err(_) => Choice::Device(server.with_only(0)),
                Ok(round) => Choice::Nth(server.clone(), round),
            };
        }
        let before = self.entries[..position].iter().filter(|server| server.place() == place);
        Choice::Device(server.with_only(server.devices[before.count()]))
    }
}

impl Target {
    /// The server with one of its devices.
    pub(crate) fn with_only(&self, device: u32) -> Target {
        Target { devices: vec![device], ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &str, rank: u32) -> String {
        match list.parse::<Targets>().unwrap().of_rank(rank) {
            Choice::Device(target) => target.to_string(),
            Choice::Nth(target, number) => format!("{target} nth {number}"),
        }
    }

    #[test]
    fn ranks_use_the_entries_in_turn() {
        let named = "gpu[1-2]/0-1:by-rank";
        let all: Vec<String> = (0..5).map(|rank| chosen(named, rank)).collect();
        assert_eq!(
            all,
            ["gpu1:9470/0", "gpu1:9470/1", "gpu2:9470/0", "gpu2:9470/1", "gpu1:9470/0"]
        );
        let interleaved = "gpu1/3,gpu2/0,gpu1/1:by-local-rank";
        let all: Vec<String> = (0..3).map(|rank| chosen(interleaved, rank)).collect();
        assert_eq!(all, ["gpu1:9470/3", "gpu2:9470/0", "gpu1:9470/1"]);
    }

    #[test]
    fn ranks_spread_over_servers_before_they_use_second_devices() {
        let all: Vec<String> = (0..5).map(|rank| chosen("gpu[1-2]:80:by-rank", rank)).collect();
        let wanted = ["gpu1:80/0", "gpu2:80/0", "gpu1:80 nth 1", "gpu2:80 nth 1", "gpu1:80 nth 2"];
        assert_eq!(all, wanted);
        assert_eq!(chosen("gpu1:by-rank", u32::MAX), format!("gpu1:9470 nth {}", u32::MAX));
    }

    #[test]
    fn the_innermost_launcher_says_the_rank() {
        let among = |by: ByRank, set: &[(&str, &str)]| {
            by.rank_among(|name| {
                set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
            })
        };
        let slurm = ("SLURM_PROCID", "0");
        assert_eq!(among(ByRank::Job, &[]), Ok(None));
        assert_eq!(among(ByRank::Job, &[slurm]), Ok(Some(0)));
        assert_eq!(among(ByRank::Job, &[slurm, ("OMPI_COMM_WORLD_RANK", "3")]), Ok(Some(3)));
        assert_eq!(among(ByRank::Job, &[slurm, ("PMI_RANK", "2")]), Ok(Some(2)));
        assert_eq!(among(ByRank::Node, &[slurm, ("PMI_RANK", "2")]), Ok(None));
        assert_eq!(among(ByRank::Node, &[("SLURM_LOCALID", "1"), slurm]), Ok(Some(1)));
        for wrong in ["", "x", "-1", "99999999999"] {
            let error = among(ByRank::Job, &[("PMI_RANK", wrong)]).unwrap_err().to_string();
            assert!(error.contains(&format!("PMI_RANK is `{wrong}`")), "{error}");
        }
        let error = ByRank::Node.unknown().to_string();
        assert!(error.contains(":by-local-rank") && error.contains("SLURM_LOCALID"), "{error}");
    }
}
