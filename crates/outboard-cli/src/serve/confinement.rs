//! What keeps workers from the rest of the machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use miette::Result;
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
}

/// How workers are kept.
pub(crate) struct Confinement {
    mode: Mode,
    user: Option<User>,
}

impl Args {
    /// Looks up what the flags name.
    pub(crate) fn settle(&self) -> Result<Confinement, Failure> {
        let no = |message: String| {
            Failure::new(Code::WorkerUser, message, "give --worker-user a user that is there, or leave it out")
        };
        let user = self.worker_user.as_deref().map(User::named).transpose().map_err(no)?;
        Ok(Confinement { mode: self.sandbox, user })
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
