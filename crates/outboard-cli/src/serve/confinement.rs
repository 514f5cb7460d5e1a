//! What keeps workers from the rest of the machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use miette::Result;
use outboard_server::cgroup::{Cgroup, CgroupError, Shares};
use outboard_server::sandbox::{Mode, User};
use outboard_wire::Code;

use crate::failure::Failure;

/// Where workers of another user keep what lasts, unless told otherwise.
const CACHES: &str = "/var/cache/outboard";

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// What keeps workers from the rest of this machine: `on` takes what the system has, `strict` serves nobody without all of it.
    #[arg(long, default_value = "on", value_name = "on|strict|off")]
    pub(crate) sandbox: Mode,
    /// The user that workers run as, by name or number; needs a server that root starts. The user must be able to open the devices.
    #[arg(long, value_name = "USER")]
    worker_user: Option<String>,
    /// The control group (version 2) that workers' groups are made in: a folder below /sys/fs/cgroup; `auto` for the server's own, which must be
    /// delegated to it, once a limit asks for one; `off` for none.
    #[arg(long, default_value = "auto", value_name = "auto|off|DIR")]
    worker_cgroup: PathBuf,
    /// The most memory of this machine that a worker may have: its own, staging memory, and memory shared with its client. Needs a control group.
    #[arg(long, value_name = "BYTES", value_parser = crate::images::bytes)]
    worker_memory: Option<u64>,
    /// The most threads and processes that a worker may have. Needs a control group.
    #[arg(long, value_name = "N")]
    worker_tasks: Option<u32>,
}

/// How workers are kept.
pub(crate) struct Confinement {
    mode: Mode,
    user: Option<User>,
    cgroup: Option<Cgroup>,
}

impl Args {
    /// Looks up what the flags name.
    pub(crate) fn settle(&self) -> Result<Confinement, Failure> {
        let no = |message: String| {
            Failure::new(Code::WorkerUser, message, "give --worker-user a user that is there, or leave it out")
        };
        let user = self.worker_user.as_deref().map(User::named).transpose().map_err(no)?;
        Ok(Confinement { mode: self.sandbox, user, cgroup: self.cgroup()? })
    }

    /// The control group to use. One that was asked for, by name or by a limit, must be there.
    fn cgroup(&self) -> Result<Option<Cgroup>, Failure> {
        let shares = Shares { memory: self.worker_memory, tasks: self.worker_tasks };
        let limited = shares != Shares::default();
        let found = match self.worker_cgroup.to_str() {
            Some("off" | "auto") if !limited => return Ok(None),
            Some("off") => Err(CgroupError::None("--worker-cgroup is off".to_owned())),
            Some("auto") => Cgroup::own(shares),
            _ => Cgroup::at(&self.worker_cgroup, shares),
        };
        let help = "run the server as a systemd service with Delegate=yes, name a group of its own with --worker-cgroup, or leave out \
                    --worker-memory and --worker-tasks";
        found.map(Some).map_err(|error| Failure::new(Code::CgroupUnusable, error.to_string(), help))
    }
}

impl Confinement {
    /// What a worker is told of it.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![OsString::from("--sandbox"), self.mode.name().into()];
        if let Some(user) = &self.user {
            arguments.extend([OsString::from("--user"), user.to_string().into()]);
        }
        arguments
    }

    /// The control group that workers are put below.
    pub(crate) fn cgroup(&self) -> Option<Cgroup> {
        self.cgroup.clone()
    }

    /// The folder for a cache that workers write: the one given, or the usual one of workers with a user of their own. It is made here, where
    /// there are rights to do so. `None` leaves the choice to others.
    pub(crate) fn cache(&self, name: &str, given: Option<&Path>) -> Option<PathBuf> {
        let user = self.user.as_ref()?;
        let folder = given.map_or_else(|| Path::new(CACHES).join(name), Path::to_owned);
        match user.own_folder(&folder) {
            Ok(()) => Some(folder),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "nothing is kept there");
                None
            }
        }
    }

    /// Whether workers run as another user than the server.
    pub(crate) fn has_user(&self) -> bool {
        self.user.is_some()
    }
}
