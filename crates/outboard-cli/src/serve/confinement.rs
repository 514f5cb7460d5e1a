//! How workers are confined.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use miette::Result;
use outboard_supervisor::cgroup::{self, Cgroup, CgroupError, Shares};
use outboard_wire::Code;
use outboard_worker::sandbox::{Calls, Mode, User};

use crate::failure::Failure;

/// The default folder for the caches of workers that run as another user.
const CACHES: &str = "/var/cache/outboard";

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// How workers are confined: `on` uses what the system offers, `strict` refuses to serve
    /// without all of it.
    #[arg(long, default_value = "on", value_name = "on|strict|off")]
    pub(crate) sandbox: Mode,
    /// Which system calls the sandbox leaves to workers once their driver is up: `allow` those that
    /// are known to do no harm, `deny` all but those that are known to do harm. `record` is as
    /// `deny`, and the log says which calls `allow` would refuse.
    #[arg(long, default_value = "allow", value_name = "allow|deny|record")]
    sandbox_calls: Calls,
    /// The user that workers run as, by name or number; needs a server that root starts. The user
    /// must be able to open the devices.
    #[arg(long, value_name = "USER")]
    worker_user: Option<String>,
    /// The control group (version 2) in which workers get their groups: a folder below
    /// /sys/fs/cgroup; `auto` for the server's own, if it is delegated to it; `off` for none.
    #[arg(long, default_value = "auto", value_name = "auto|off|DIR")]
    worker_cgroup: PathBuf,
    /// The most memory of this machine for a worker: its own, staging memory, and memory shared
    /// with its client. A worker that takes more is ended. `auto` is three quarters of the
    /// machine's memory, or of the server's control group, if workers can have control groups;
    /// `off` for no limit. A number needs a control group.
    #[arg(long, default_value = "auto", value_name = "BYTES|auto|off", value_parser = memory)]
    worker_memory: Limit<u64>,
    /// The most threads and processes of a worker. `auto` is 4,096 if workers can have control
    /// groups; `off` for no limit. A number needs a control group.
    #[arg(long, default_value = "auto", value_name = "N|auto|off", value_parser = tasks)]
    worker_tasks: Limit<u32>,
}

/// What `auto` gives a worker: threads and processes. Its session's own bounds keep it below a
/// thousand.
const TASKS: u32 = 4096;

/// A limit as it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit<T> {
    /// One that does, where there can be one.
    Auto,
    Off,
    At(T),
}

impl<T: Copy> Limit<T> {
    fn parse(text: &str, number: impl Fn(&str) -> Result<T, String>) -> Result<Limit<T>, String> {
        match text {
            "auto" => Ok(Limit::Auto),
            "off" => Ok(Limit::Off),
            other => number(other).map(Limit::At),
        }
    }

    /// The user's choice.
    fn asked(self) -> Option<T> {
        if let Limit::At(value) = self { Some(value) } else { None }
    }

    /// The same, or `auto`.
    fn wanted(self, auto: T) -> Option<T> {
        if let Limit::Auto = self { Some(auto) } else { self.asked() }
    }
}

fn memory(text: &str) -> Result<Limit<u64>, String> {
    Limit::parse(text, crate::images::bytes)
}

fn tasks(text: &str) -> Result<Limit<u32>, String> {
    Limit::parse(text, |text| {
        text.parse().map_err(|_| format!("`{text}` is not a number of tasks, `auto` or `off`"))
    })
}

/// How workers are kept.
pub(crate) struct Confinement {
    mode: Mode,
    calls: Calls,
    user: Option<User>,
    cgroup: Option<Cgroup>,
}

impl Args {
    /// Looks up what the flags name.
    pub(crate) fn settle(&self) -> Result<Confinement, Failure> {
        let no = |message: String| {
            Failure::new(
                Code::WorkerUser,
                message,
                "give --worker-user a user that is there, or leave it out",
            )
        };
        let user = self.worker_user.as_deref().map(User::named).transpose().map_err(no)?;
        let (mode, calls) = (self.sandbox, self.sandbox_calls);
        Ok(Confinement { mode, calls, user, cgroup: self.cgroup()? })
    }

    /// The control group to use. One that was asked for, by name or by a limit, must be there;
    /// those that do without being asked for are set where they can be.
    fn cgroup(&self) -> Result<Option<Cgroup>, Failure> {
        let asked = Shares { memory: self.worker_memory.asked(), tasks: self.worker_tasks.asked() };
        let memory = self.worker_memory.wanted(cgroup::memory() / 4 * 3);
        let wanted = Shares { memory, tasks: self.worker_tasks.wanted(TASKS) };
        let make = |shares| match self.worker_cgroup.to_str() {
            Some("off") => Err(CgroupError::None("--worker-cgroup is off".to_owned())),
            Some("auto") => Cgroup::own(shares),
            _ => Cgroup::at(&self.worker_cgroup, shares),
        };
        let named = !matches!(self.worker_cgroup.to_str(), Some("off" | "auto"));
        let must = named || asked != Shares::default();
        if !must && (wanted == Shares::default() || self.worker_cgroup.to_str() == Some("off")) {
            return Ok(None);
        }
        let made = make(wanted).or_else(|error| match error {
            // A controller that only `auto` has use for.
            CgroupError::Controller { .. } if must && wanted != asked => make(asked),
            error => Err(error),
        });
        match made {
            Ok(cgroup) => Ok(Some(cgroup)),
            Err(error) if !must => {
                tracing::info!(%error, "workers have no control groups: only what a session may have bounds what they take of this machine");
                Ok(None)
            }
            Err(error) => {
                let help = "run the server as a systemd service with Delegate=yes, name a group of its own with --worker-cgroup, or leave out \
                            --worker-memory and --worker-tasks";
                Err(Failure::new(Code::CgroupUnusable, error.to_string(), help))
            }
        }
    }
}

impl Confinement {
    /// The worker's arguments for it.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![OsString::from("--sandbox"), self.mode.name().into()];
        arguments.extend([OsString::from("--sandbox-calls"), self.calls.name().into()]);
        if let Some(user) = &self.user {
            arguments.extend([OsString::from("--user"), user.to_string().into()]);
        }
        arguments
    }

    /// Whether calls that the sandbox has in no list are made and noted.
    pub(crate) fn records_calls(&self) -> bool {
        self.calls == Calls::Record
    }

    /// The control group that workers are put below.
    pub(crate) fn cgroup(&self) -> Option<Cgroup> {
        self.cgroup.clone()
    }

    /// The folder for a cache that workers write: the one given, or the usual one of workers with a
    /// user of their own. It is made here, where there are rights to do so. `None` leaves the
    /// choice to others.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_or_words() {
        assert_eq!(
            (memory("auto"), memory("off"), memory("2G")),
            (Ok(Limit::Auto), Ok(Limit::Off), Ok(Limit::At(2 << 30)))
        );
        assert_eq!((tasks("100"), tasks("off")), (Ok(Limit::At(100)), Ok(Limit::Off)));
        assert!(memory("much").is_err() && tasks("-1").is_err() && tasks("").is_err());
        assert_eq!(
            (Limit::Auto.wanted(7), Limit::Off.wanted(7), Limit::At(3).wanted(7)),
            (Some(7), None, Some(3))
        );
    }
}
