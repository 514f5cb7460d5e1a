//! A server of the project's commands.

use crate::stage::Dist;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A server must be up after this time.
const STARTUP: Duration = Duration::from_secs(60);

/// A running `outboard serve` on a free port; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts one for this machine with a driver, or with the one that it finds. What it warns of
    /// is shown.
    pub(crate) fn local(dist: &Dist, driver: Option<&str>) -> Result<Server> {
        Server::start(Command::new(dist.outboard()), &["--listen", "127.0.0.1:0"], driver)
    }

    /// Starts `outboard` by a command of the caller's, with some flags of `serve`.
    pub(crate) fn start(
        mut command: Command,
        flags: &[&str],
        driver: Option<&str>,
    ) -> Result<Server> {
        command.args(["serve", "--log-format", "json"]).args(flags);
        if let Some(driver) = driver {
            command.args(["--driver", driver]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start `outboard serve`")?;
        let ready = listening(&mut child);
        let mut server = Server { child, address: String::new() };
        server.address = ready?.recv_timeout(STARTUP).context("the server did not come up")?;
        Ok(server)
    }
}

impl Server {
    /// Ends one that cannot be asked to: what started it in namespaces of its own minds no signal
    /// but this one, with which all in them ends.
    pub(crate) fn end(mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Asked to stop as a user would; killed if that does not work.
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Hears where a server listens, from its log, which is read to the end: a server whose log nobody
/// reads stands still. What it warns of is shown.
pub(crate) fn listening(server: &mut Child) -> Result<mpsc::Receiver<String>> {
    let log = BufReader::new(server.stderr.take().context("standard error is piped")?);
    let (send, ready) = mpsc::channel();
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            let entry: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if entry["fields"]["message"] == "serving" {
                let _ =
                    send.send(entry["fields"]["address"].as_str().unwrap_or_default().to_owned());
            } else if entry["level"] != "INFO" {
                eprintln!("server: {line}");
            }
        }
    });
    Ok(ready)
}
