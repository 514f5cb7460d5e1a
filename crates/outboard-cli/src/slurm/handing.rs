//! What each node does for a job: writes its lease where its tasks find it, and removes it.
//!
//! The SPANK plug-in (deploy/slurm/outboard.c) reads the file `environment` when a task starts; if
//! there is a file `refused` instead, it shows that sentence and the task fails.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use miette::Result;
use outboard_auth::files::write_secret_as;
use outboard_broker_client::{AskError, Blocking, Method};
use outboard_pool::api::{JobGrant, Me, Role};
use outboard_pool::words::Node;
use outboard_wire::Code;

use super::job::{Job, Local, node};
use crate::failure::Failure;
use crate::pool::access::{self, failed};
use crate::pool::shown;
use crate::time::Span;
use crate::{environment, install};

const ENVIRONMENT: &str = "environment";
const KEY: &str = "key.pem";
const LEASE: &str = "lease";
const REFUSED: &str = "refused";
/// How long to wait before a broker that is away is asked again.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    access: access::Args,
    /// A file with this node's own token, of the role `node`; without it, the token is the one
    /// that other commands show.
    #[arg(
        long,
        env = "OUTBOARD_SLURM_NODE_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    node_token_file: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// How long to wait for a broker that is away. Then the job's tasks fail with a sentence.
    #[arg(
        long,
        env = "OUTBOARD_SLURM_NODE_WAIT",
        hide_env_values = true,
        default_value = "60s",
        value_name = "TIME"
    )]
    wait: Span,
}

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Place {
    /// Where nodes keep the leases of their jobs; the SPANK plug-in looks there.
    #[arg(
        long,
        env = "OUTBOARD_SLURM_FOLDER",
        hide_env_values = true,
        default_value = "/run/outboard-slurm",
        value_name = "DIR"
    )]
    folder: PathBuf,
}

impl Place {
    /// The folder of a job on a node.
    fn of(&self, job: &Job, node: &str) -> PathBuf {
        self.folder.join(format!("{}.{node}", job.number))
    }
}

/// Writes the job's lease, or why there is none: a prolog that failed would drain the node, whose
/// fault it is not.
pub(super) fn hand_out(args: &Args) -> Result<()> {
    let (job, local) = (Job::this()?, Local::this()?);
    let place = args.place.of(&job, &local.node);
    // Without them the node is not fit for such jobs: Slurm may drain it.
    let libraries = install::client_dir()?;
    let files = match lease(args, &job, &local.node) {
        Ok(grant) => files(&place, &libraries, grant),
        Err(failure) => {
            let help = failure.help();
            let sentence = format!("job {} has no remote GPUs: {failure}; {help}", job.number);
            eprintln!("outboard: {sentence}");
            BTreeMap::from([(REFUSED, (sentence + "\n").into_bytes())])
        }
    };
    let written = write(&place, &files, &local);
    Ok(written.map_err(|error| Failure::file("write the job's lease to", &place, &error))?)
}

/// Removes what was written for the job.
pub(super) fn take_back(place: &Place) -> Result<()> {
    let place = place.of(&Job::this()?, &node()?);
    remove(&place).map_err(|error| Failure::file("remove", &place, &error).into())
}

fn remove(place: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The lease that the controller has got, with its key.
fn lease(args: &Args, job: &Job, node: &str) -> Result<JobGrant, Failure> {
    let broker = match &args.node_token_file {
        Some(file) => args.access.clone().broker_for(file.clone()),
        None => args.access.broker(),
    }?;
    let until = Instant::now() + args.wait.0.unsigned_abs();
    let path = format!("/v1/jobs/{}", job.purpose);
    loop {
        match ask(&broker, &path, node)? {
            Ok(grant) => return Ok(grant),
            Err(error) if error.may_pass() && Instant::now() < until => std::thread::sleep(PAUSE),
            Err(error) => return Err(why_none(&error, node)),
        }
    }
}

/// The lease, or the broker's reason.
fn ask(broker: &Blocking, path: &str, node: &str) -> Result<Result<JobGrant, AskError>, Failure> {
    match broker.ask::<Me>(Method::GET, "/v1/me") {
        Ok(me) => may_fetch(&me, node).map(|()| broker.ask(Method::GET, path)),
        Err(error) => Ok(Err(error)),
    }
}

/// Slurm starts a node's prolog once the controller's, which gets the lease, has succeeded: a lease
/// that is not there is over, such as that of a job that was cancelled in between.
fn why_none(error: &AskError, node: &str) -> Failure {
    match error {
        AskError::Refused { status: 404, .. } => Failure::new(
            Code::NotAvailable,
            format!("the pool has no lease for it on {node}, or not any more"),
            "if the job was not cancelled, whoever runs Slurm sees why in slurmctld's log",
        ),
        error => failed(error),
    }
}

/// Whether the token is one for this node.
fn may_fetch(me: &Me, node: &str) -> Result<(), Failure> {
    const HELP: &str = "make a token for each node (`outboard token --broker create --role node \
                        --owner NODE@SCHEDULER`), and name its file in slurm.env \
                        (OUTBOARD_SLURM_NODE_TOKEN_FILE)";
    let of = |role| format!("node {node} has a token of {} with the role {role}", me.owner);
    match me.role {
        Role::Node => match Node::of(me.owner.as_str()) {
            Ok(owner) if owner.name.as_str() == node => Ok(()),
            _ => Err(Failure::new(Code::BadCredentials, of(Role::Node), HELP)),
        },
        // As all nodes had it with release 0.1.0; the broker's log warns of it.
        Role::Scheduler | Role::Admin => Ok(()),
        role => Err(Failure::new(Code::BadCredentials, of(role), HELP)),
    }
}

type Files = BTreeMap<&'static str, Vec<u8>>;

fn files(place: &Path, libraries: &Path, JobGrant { grant, key }: JobGrant) -> Files {
    let mut text = Vec::new();
    for (name, how, value) in environment::rules(libraries, install::python_dir().as_deref()) {
        line(&mut text, name, how.sign(), &value);
    }
    let shown = shown::variables(&grant.servers, &place.join(LEASE), &place.join(KEY));
    for (name, value) in &shown {
        line(&mut text, name, "=", value);
    }
    let token = grant.token.into_bytes();
    BTreeMap::from([(ENVIRONMENT, text), (KEY, key.into_bytes()), (LEASE, token)])
}

/// A variable for the SPANK plug-in, which sets it (`=`), puts it in front of a search path (`+=`),
/// or sets it unless it is set (`?=`).
fn line(text: &mut Vec<u8>, name: &str, sign: &str, value: &OsStr) {
    text.extend_from_slice(&[name.as_bytes(), sign.as_bytes(), value.as_bytes(), b"\n"].concat());
}

/// Writes the folder of a job, whole or not at all; the job's user alone can read it.
fn write(place: &Path, files: &Files, local: &Local) -> io::Result<()> {
    let above = place.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(above)?;
    // Users reach their own jobs' folders in it, and do not see which others there are.
    std::fs::set_permissions(above, std::fs::Permissions::from_mode(0o711))?;
    let mut unfinished = place.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    remove(&unfinished)?;
    std::fs::DirBuilder::new().mode(0o700).create(&unfinished)?;
    let owned = |path: &Path| chown(path, Some(local.user), Some(local.group));
    for (name, bytes) in files {
        let path = unfinished.join(name);
        write_secret_as(&path, bytes, 0o400)?;
        owned(&path)?;
    }
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o500))?;
    owned(&unfinished)?;
    // One of an earlier run of the job.
    remove(place)?;
    std::fs::rename(&unfinished, place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_a_job_gets_is_its_users_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let above = temporary.path().join("jobs");
        let place = above.join("7.n1");
        let process = rustix::process::geteuid().as_raw();
        // Only root can give files to others.
        let user = if process == 0 { 4001 } else { process };
        let group = rustix::process::getegid().as_raw();
        let local = Local { node: "n1".into(), user, group };
        for token in ["first", "second"] {
            let files = BTreeMap::from([(LEASE, token.as_bytes().to_vec())]);
            write(&place, &files, &local).unwrap();
            let found = std::fs::metadata(place.join(LEASE)).unwrap();
            assert_eq!((found.mode() & 0o7777, found.uid()), (0o400, user));
            assert_eq!(std::fs::read(place.join(LEASE)).unwrap(), token.as_bytes());
        }
        let found = std::fs::metadata(&place).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o500, user));
        assert_eq!(std::fs::metadata(&above).unwrap().mode() & 0o7777, 0o711);
        remove(&place).unwrap();
        remove(&place).unwrap();
        assert_eq!(std::fs::read_dir(&above).unwrap().count(), 0);
    }

    #[test]
    fn a_node_has_a_token_of_its_own() {
        let may = |owner: &str, role| {
            let (owner, group) = (owner.parse().unwrap(), "everybody".parse().unwrap());
            may_fetch(&Me { owner, group, role }, "n1").map_err(|failure| failure.to_string())
        };
        assert!(may("n1@slurm", Role::Node).is_ok());
        for (owner, role) in
            [("n2@slurm", Role::Node), ("n1", Role::Node), ("n1@slurm", Role::Client)]
        {
            let error = may(owner, role).unwrap_err();
            let wanted = format!("node n1 has a token of {owner} with the role {role}");
            assert_eq!(error, wanted);
        }
        // A cluster that was set up for an earlier release goes on.
        assert!(may("slurm", Role::Scheduler).is_ok());
    }

    #[test]
    fn the_plug_in_gets_a_variable_a_line() {
        let mut text = Vec::new();
        line(&mut text, "A", "=", OsStr::new("x=y"));
        line(&mut text, "PATH", environment::How::InFront.sign(), OsStr::new("/lib"));
        line(&mut text, "B", environment::How::UnlessSet.sign(), OsStr::new("1"));
        assert_eq!(text, b"A=x=y\nPATH+=/lib\nB?=1\n");
    }
}
