//! What Slurm's controller does for a job: asks for its lease, and ends it.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use miette::Result;
use outboard_broker_client::{AskError, Blocking, Method};
use outboard_pool::api::{Grant, JobAsk};
use outboard_pool::words::{MayShare, Purpose};
use outboard_wire::Code;

use super::controller;
use super::job::{self, Job};
use crate::failure::Failure;
use crate::pool::access;
use crate::pool::asking::{patiently, wait};
use crate::time::Span;

/// A job begins a little later than its lease, and is to have it to its end.
pub(super) const START: u32 = 10;
/// How long an epilog waits for a broker that is away. Then `outboard slurm sync` ends the lease.
const EPILOG: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    access: access::Args,
    /// How long to wait for the devices, and for a broker that is away.
    #[arg(
        long,
        env = "OUTBOARD_SLURM_WAIT",
        hide_env_values = true,
        default_value = "3m",
        value_name = "TIME"
    )]
    wait: Span,
}

#[derive(clap::Args)]
pub(super) struct EndArgs {
    #[command(flatten)]
    access: access::Args,
}

/// Gets a lease for a job that has licences, or says to the job's user why it has none.
pub(super) fn grant(args: &Args) -> Result<()> {
    let job = Job::this()?;
    match lease(args, &job) {
        Ok(None) => Ok(()),
        Ok(Some(grant)) => {
            tell(controller::note(&job.number, &described(&grant)));
            Ok(())
        }
        Err(failure) => {
            let sentence =
                format!("job {} has no remote GPUs: {failure}; {}", job.number, failure.help());
            tell(controller::notify(&job.number, &sentence));
            tell(controller::note(&job.number, &sentence));
            Err(failure.into())
        }
    }
}

/// What a person is told is lost if it cannot be told; the job's fate does not depend on it.
fn tell(told: Result<(), Failure>) {
    if let Err(failure) = told {
        eprintln!("outboard: {failure}");
    }
}

fn described(grant: &Grant) -> String {
    let device = |server: &outboard_pool::api::Reach| {
        server.devices.iter().map(|uuid| format!("{}/{uuid}", server.name)).collect::<Vec<_>>()
    };
    let devices: Vec<String> = grant.servers.iter().flat_map(device).collect();
    format!("lease {}: {}", grant.number, devices.join(" "))
}

fn lease(args: &Args, job: &Job) -> Result<Option<Grant>, Failure> {
    let Some(mut request) = job::wanted()? else { return Ok(None) };
    let nodes = controller::nodes(&job::nodes()?)?;
    let limit = controller::time_limit(&job.number)?;
    let broker = args.access.broker()?;
    let until = Instant::now() + args.wait.0.unsigned_abs();
    // A person is told once that it takes longer, not of each place in the queue.
    let is_told = std::cell::Cell::new(false);
    let say = |sentence: &str| {
        eprintln!("outboard: job {}: {sentence}", job.number);
        if !is_told.replace(true) {
            tell(controller::notify(&job.number, sentence));
        }
    };
    // What there is is of an earlier run of the job, and would end too early for this one.
    patiently(Some(until), &say, || give_up(&broker, &job.purpose))?;
    request.may_share = MayShare::SameKey;
    request.wait_seconds = u32::try_from(args.wait.0.as_secs()).unwrap_or(u32::MAX);
    let seconds = limit.map(|limit| limit.saturating_add(START));
    let ask = JobAsk {
        request,
        purpose: job.purpose.clone(),
        nodes,
        life_seconds: Some(seconds.unwrap_or(u32::MAX)),
        for_seconds: seconds,
    };
    let grant = wait(&broker, ask, Some(until), &say)?;
    if let Some(limit) = limit
        && grant.expires < Timestamp::now() + SignedDuration::from_secs(limit.into())
    {
        let _ = give_up(&broker, &job.purpose);
        let help = "ask for a shorter time (`--time`), or have the broker started with --longest";
        let sentence = "the job's time limit is longer than the broker grants a lease for";
        return Err(Failure::new(Code::BrokerDeclined, sentence, help));
    }
    Ok(Some(grant))
}

/// Ends the lease of a job, if there is one. Slurm waits for it: it is brief.
pub(super) fn end(args: &EndArgs) -> Result<()> {
    let job = Job::this()?;
    let broker = args.access.broker()?;
    let say = |sentence: &str| eprintln!("outboard: job {}: {sentence}", job.number);
    patiently(Some(Instant::now() + EPILOG), &say, || give_up(&broker, &job.purpose))?;
    Ok(())
}

/// Ends what there is for a purpose, if there is anything.
fn give_up(broker: &Blocking, purpose: &Purpose) -> Result<(), AskError> {
    match broker.bytes(Method::DELETE, &format!("/v1/purposes/{purpose}")) {
        Ok(_) | Err(AskError::Refused { status: 404, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
