//! The cases, in the order in which they are run.

mod ends;
mod faults;
mod kinds;
mod nodes;
mod own_servers;
mod rules;
mod times;

use super::world::{Run, World};
use crate::apart::Case;
use anyhow::{Result, bail};
use std::collections::BTreeSet;

const fn case(name: &'static str, run: Run) -> Case<World> {
    Case { name, run }
}

pub(super) const ALL: &[Case<World>] = &[
    case("srun", kinds::srun),
    case("srun --gres", kinds::gres),
    case("sbatch, until its time limit", kinds::sbatch),
    case("salloc", kinds::salloc),
    case("a job array", kinds::array),
    case("a heterogeneous job", kinds::heterogeneous),
    case("several nodes", kinds::nodes),
    case("several steps at a time", kinds::steps),
    case("a job without remote GPUs", kinds::without),
    case("a job starts its servers itself", own_servers::used),
    case("a job with its own servers is cancelled", own_servers::cancelled),
    case("what makes no sense is refused", rules::refusals),
    case("what the pool does not have is told", rules::unknown_memory),
    case("a full pool: the next job waits for licences", rules::full),
    case("licences in what Slurm shows", rules::visible),
    case("accounts and fair share see the devices", rules::accounted),
    case("keys and tokens are not for others", rules::secrets),
    case("a node acts for its own jobs only", nodes::own_jobs_only),
    case("a job cancelled before it begins on its node", nodes::cancelled_before),
    case("nodes that have the scheduler's token go on", nodes::set_up_as_before),
    case("a job gets more time", times::extended),
    case("a job gets more time than the broker gives", times::too_long),
    case("a job is suspended and resumed", times::suspended),
    case("a job is cancelled", ends::cancelled),
    case("a job is requeued", ends::requeued),
    case("preemption by REQUEUE", ends::preempted_and_requeued),
    case("preemption by CANCEL", ends::preempted_and_cancelled),
    case("slurmctld is killed and started again", faults::controller),
    case("a job ends while slurmctld is away", faults::ended_without_controller),
    case("a node dies", faults::node),
    case("the broker is away when a job begins", faults::broker_at_begin),
    case("the broker is away when a job ends", faults::broker_at_end),
    case("a server goes and comes back", faults::server),
];

/// The servers of the devices that a job has tried; each has one. All must have worked, and there
/// must be so many.
fn so_many(printed: &str, count: usize) -> Result<BTreeSet<String>> {
    let servers = printed.lines().filter_map(|line| Some(line.split_once("server ")?.1.to_owned()));
    let servers: BTreeSet<String> = servers.collect();
    let mut tried = printed.lines().filter(|line| line.contains("GPU-")).peekable();
    if servers.len() != count
        || tried.peek().is_none()
        || !tried.all(|line| line.ends_with("works"))
    {
        bail!("not {count} devices that work: {printed}");
    }
    Ok(servers)
}
