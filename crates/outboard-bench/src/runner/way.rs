//! A way to the device: natively, or over a transport through a server of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Setup;
use crate::BenchError;
use crate::participant::{Participant, STATISTICS};
use crate::processor::Family;
use crate::results::NATIVE;
use crate::servers::Server;

/// The name of TCP with TLS.
const TLS: &str = "tls";

pub(super) struct Way {
    /// `native`, or the transport.
    pub(super) name: String,
    server: Option<Server>,
    /// By what its client recognises it, if the connection is encrypted.
    fingerprint: Option<String>,
    folder: PathBuf,
    started: u32,
}

/// A participant with the file that its statistics will be in.
pub(super) struct Seat {
    pub(super) participant: Participant,
    statistics: PathBuf,
}

/// CPU time used so far by a participant, with what it has started, and by its server.
pub(super) struct Used {
    client: Family,
    server: Family,
}

impl Way {
    /// The native one.
    pub(super) fn native(setup: &Setup) -> Result<Way, BenchError> {
        Way::with(setup, NATIVE, None)
    }

    /// One with a new server.
    pub(super) fn through(setup: &Setup, transport: &str) -> Result<Way, BenchError> {
        let folder = setup.scratch.join(transport);
        let flags: &[&str] = if transport == TLS { &["--tls", "on"] } else { &[] };
        let server =
            Server::start(&setup.outboard, &setup.driver.to_string_lossy(), &folder, flags)?;
        let mut way = Way::with(setup, transport, Some(server))?;
        if transport == TLS {
            way.fingerprint = Some(Server::fingerprint(&setup.outboard, &folder)?);
        }
        Ok(way)
    }

    /// What clients call the transport that is used.
    pub(super) fn transport(&self) -> &str {
        if self.name == TLS { "tcp+tls" } else { &self.name }
    }

    fn with(setup: &Setup, name: &str, server: Option<Server>) -> Result<Way, BenchError> {
        let folder = setup.scratch.join(name);
        fs::create_dir_all(&folder)
            .map_err(BenchError::system(format!("cannot create {}", folder.display())))?;
        Ok(Way { name: name.to_owned(), server, fingerprint: None, folder, started: 0 })
    }

    /// Starts a program this way.
    pub(super) fn start(
        &mut self,
        setup: &Setup,
        program: &Path,
        args: &[OsString],
    ) -> Result<Seat, BenchError> {
        self.started += 1;
        let statistics = self.folder.join(format!("statistics-{}.json", self.started));
        let mut command;
        if let Some(server) = &self.server {
            command = Command::new(&setup.outboard);
            command.args(["run", "--server", server.address(), "--"]).arg(program);
            let transport = if self.name == TLS { "tcp" } else { self.name.as_str() };
            command.env("OUTBOARD_TRANSPORT", transport).env(STATISTICS, &statistics);
            if let Some(fingerprint) = &self.fingerprint {
                command.env("OUTBOARD_TLS_FINGERPRINT", fingerprint);
            }
        } else {
            command = Command::new(program);
            command.env_remove("OUTBOARD_SERVER");
            if let Some(native) = &setup.native {
                let mut path = native.clone().into_os_string();
                if let Some(others) =
                    std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty())
                {
                    path.push(":");
                    path.push(others);
                }
                command.env("LD_LIBRARY_PATH", path);
            }
        }
        command.args(args);
        let log = self.folder.join(format!("participant-{}.log", self.started));
        Ok(Seat { participant: Participant::start(command, Some(&log))?, statistics })
    }

    /// CPU time now.
    pub(super) fn used(&self, seat: &Seat) -> Used {
        Used {
            client: Family::of(seat.participant.id()),
            server: self.server.as_ref().map(|server| Family::of(server.id())).unwrap_or_default(),
        }
    }
}

impl Used {
    /// CPU time used since then, of the participant and of the server.
    pub(super) fn since(&self, earlier: &Used) -> (f64, f64) {
        (self.client.since(&earlier.client).max(0.0), self.server.since(&earlier.server).max(0.0))
    }
}

impl Seat {
    /// Lets the participant end and reads the statistics that its client library then writes.
    pub(super) fn finish(self) -> Option<serde_json::Value> {
        self.participant.finish(std::time::Duration::from_secs(20));
        serde_json::from_slice(&fs::read(self.statistics).ok()?).ok()
    }
}
