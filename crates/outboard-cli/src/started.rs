//! Servers that a command starts for its programs or itself: `local`, and those behind `ssh://`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use miette::Result;
use outboard_client::own_settings;
use outboard_client::target::{Target, Targets};

use crate::failure::Failure;
use crate::{local, ssh};

/// They end with this process, or with what it starts.
#[derive(Default)]
pub(crate) struct Started {
    /// The server of this machine's own devices.
    pub(crate) local: Option<local::Server>,
    /// Servers on other machines.
    pub(crate) ssh: Option<ssh::Servers>,
}

/// Starts those that are among the targets, which then have their addresses.
pub(crate) fn start(targets: Targets) -> Result<(Targets, Started)> {
    let (targets, local) = local::serve(targets)?;
    let (targets, ssh) = ssh::serve(targets)?;
    Ok((targets, Started { local, ssh }))
}

/// Fails if one would have to be started: there is no process whose end would be its end.
pub(crate) fn refuse(servers: &[Target]) -> Result<(), Failure> {
    local::refuse(servers)?;
    ssh::refuse(servers)
}

impl Started {
    /// The variables by which programs know the servers, beside the list of them.
    pub(crate) fn variables(&self) -> Result<BTreeMap<&'static str, OsString>> {
        let known = self.ssh.as_ref().map(ssh::Servers::known).transpose()?;
        Ok(known.map(|known| (own_settings::VARIABLE, known.into())).into_iter().collect())
    }
}
