//! `ssh://`: servers that this command starts on machines which ssh leads to, and which end with it.
//!
//! The person's own `ssh` connects. Over that connection a shell there finds or takes this release,
//! and starts `outboard serve`, whose standard input ends with this process.

mod connection;
mod dialogue;
mod janitor;
mod release;
mod way;

use std::sync::Arc;

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_auth::files;
use outboard_client::invitation::Invitation;
use outboard_client::own_settings;
use outboard_client::target::{Target, Targets};
use outboard_transport::Endpoint;
use outboard_wire::Code;
use serde_json::{Map, Value, json};

use crate::at_once::at_once;
use crate::failure::Failure;
use connection::Connection;
pub(crate) use dialogue::MARK;
use dialogue::Shell;
use janitor::Lifeline;
pub(crate) use janitor::{Args as JanitorArgs, clean_up};
use release::Release;

/// The driver library of such servers, as `outboard serve --driver` takes it.
const DRIVER: &str = "OUTBOARD_SSH_DRIVER";
/// Whether they may be reached without ssh.
const DIRECT: &str = "OUTBOARD_SSH_DIRECT";

/// For how many seconds a connection without ssh is made again. The server ends with ssh's, whose
/// loss is noticed later; ssh's own is never made again.
const RECONNECT: &str = "20";

/// Servers for this process and what it starts.
pub(crate) struct Servers {
    started: Vec<Server>,
    /// What is left of them goes once this is closed.
    lifeline: Lifeline,
}

struct Server {
    /// How programs know it, and where they find it.
    invitation: Arc<Invitation>,
    /// Whether programs connect to it without ssh.
    is_direct: bool,
    _shell: Shell,
}

/// Starts a server on each machine among the targets that ssh leads to; these then have its
/// address.
pub(crate) fn serve(mut targets: Targets) -> Result<(Targets, Option<Servers>)> {
    let named: Vec<Endpoint> =
        targets.servers().iter().map(|target| target.address.clone()).collect();
    let machines: Vec<(Endpoint, String)> = named
        .into_iter()
        .filter_map(|address| match &address {
            Endpoint::Ssh(_) => Some((address.clone(), address.to_string())),
            _ => None,
        })
        .collect();
    if machines.is_empty() {
        return Ok((targets, None));
    }
    let wanted = Wanted::from_env()?;
    // The files are read while ssh connects.
    let with_device = wanted.driver == "cpu";
    let release = std::thread::spawn(move || Release::read(with_device));
    let lifeline = Lifeline::start()?;
    // One after the other, as each may ask for a passphrase.
    let connections = machines.iter().enumerate().map(|(place, (_, destination))| {
        Connection::open(destination, lifeline.folder().join(format!("{place}.ctl")))
    });
    let connections = connections.collect::<Result<Vec<_>, _>>()?;
    let release = release.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let started = at_once(&connections, |connection| start(connection, &release, &wanted));
    let started = started.into_iter().collect::<Result<Vec<_>, _>>()?;
    for ((address, _), server) in machines.iter().zip(&started) {
        let at = &server.invitation.server;
        targets = targets.with_started(address, at, Some(&server.invitation));
    }
    Ok((targets, Some(Servers { started, lifeline })))
}

/// Fails if ssh is to lead to any of the targets: there is no process whose end would be the
/// server's.
pub(crate) fn refuse(servers: &[Target]) -> Result<(), Failure> {
    let is_ssh = |target: &&Target| matches!(target.address, Endpoint::Ssh(_));
    let Some(target) = servers.iter().find(is_ssh) else { return Ok(()) };
    let message = format!(
        "{} is a server that ends with `outboard run`, so there is nothing to print for others",
        target.address
    );
    let help = "start the programs below one `outboard run --server ssh://... -- sh`, or start `outboard serve` there and name it";
    Err(Failure::new(Code::BadUsage, message, help))
}

/// What the settings say of such servers.
struct Wanted {
    driver: String,
    direct: bool,
}

impl Wanted {
    fn from_env() -> Result<Wanted, Failure> {
        let text = |name| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
        let direct = match text(DIRECT).as_deref() {
            None | Some("auto") => true,
            Some("off") => false,
            Some(other) => {
                let message = format!("{DIRECT} is `{other}`; it can be auto or off");
                let help = "`outboard config show` says where it was set";
                return Err(Failure::new(Code::BadConfiguration, message, help));
            }
        };
        Ok(Wanted { driver: text(DRIVER).unwrap_or_else(|| "nvidia".to_owned()), direct })
    }
}

fn start(connection: &Connection, release: &Release, wanted: &Wanted) -> Result<Server, Failure> {
    let (shell, told) = dialogue::start(connection, release, &wanted.driver, wanted.direct)?;
    let (server, is_direct) = way::choose(connection, &told, wanted.direct)?;
    Ok(Server { invitation: Arc::new(Invitation { server, ..told }), is_direct, _shell: shell })
}

impl Servers {
    /// The value by which programs know the servers: that of [`own_settings::VARIABLE`], with what
    /// it has already.
    pub(crate) fn known(&self) -> Result<String> {
        let given = std::env::var(own_settings::VARIABLE).unwrap_or_default();
        let mut all: Map<String, Value> = if given.trim().is_empty() {
            Map::new()
        } else {
            serde_json::from_str(&given).map_err(|error| {
                let message = format!("{} cannot be used: {error}", own_settings::VARIABLE);
                Failure::new(
                    Code::BadConfiguration,
                    message,
                    "`outboard docs configuration` has its form",
                )
            })?
        };
        for (place, server) in self.started.iter().enumerate() {
            let Server { invitation, is_direct, .. } = server;
            let Invitation { server, fingerprint, token } = &**invitation;
            let file = self.lifeline.folder().join(format!("{place}.token"));
            files::write_secret(&file, token.as_bytes())
                .into_diagnostic()
                .wrap_err("cannot keep the token of a server")?;
            let mut settings = json!({
                "tls-fingerprint": fingerprint.to_string(),
                "token-file": file.display().to_string(),
            });
            let reconnect = if *is_direct { RECONNECT } else { "0" };
            if !*is_direct || std::env::var_os("OUTBOARD_RECONNECT").is_none() {
                settings["reconnect"] = reconnect.into();
            }
            all.insert(server.to_string(), settings);
        }
        Ok(Value::Object(all).to_string())
    }
}
