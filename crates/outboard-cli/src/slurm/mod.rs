//! `outboard slurm`: what Slurm's prologs and epilogs call, and what keeps Slurm's licences as many
//! as the pool has devices.
//!
//! Slurm's controller asks the broker for a job's lease (`granting`); each node of the job fetches
//! it with its key, by a token of its own, and writes them where the job's tasks find them
//! (`handing`).

mod controller;
mod granting;
mod handing;
mod job;
mod licenses;
mod limit;
mod prolonging;
mod syncing;

use clap::Subcommand;
use miette::Result;

/// The licence of Slurm that stands for a device of the pool.
const LICENSE: &str = "rgpu";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Get the lease of a job; for PrologSlurmctld.
    PrologSlurmctld(granting::Args),
    /// End the lease of a job; for EpilogSlurmctld.
    EpilogSlurmctld(granting::EndArgs),
    /// Write the lease of a job where its tasks find it; for Prolog.
    Prolog(handing::Args),
    /// Remove what `prolog` has written; for Epilog.
    Epilog(handing::Place),
    /// Keep Slurm's licences as many as the pool has devices for it, end leases whose jobs are
    /// over, and prolong those of jobs that may go on for longer.
    Sync(syncing::Args),
}

pub(crate) fn slurm(args: Args) -> Result<()> {
    match args.what {
        What::PrologSlurmctld(args) => granting::grant(&args),
        What::EpilogSlurmctld(args) => granting::end(&args),
        What::Prolog(args) => handing::hand_out(&args),
        What::Epilog(place) => handing::take_back(&place),
        What::Sync(args) => syncing::sync(&args),
    }
}
