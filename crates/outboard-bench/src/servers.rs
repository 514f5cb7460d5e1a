//! Servers that the program that measures starts for itself.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::BenchError;

/// A server must listen after this time.
const STARTUP: Duration = Duration::from_secs(60);

/// A running `outboard serve` on a free port of the loopback interface; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts a server for a driver library, with further flags. Its caches are its own, in
    /// `folder`, so that what others left there is not found.
    pub(crate) fn start(
        outboard: &Path,
        driver: &str,
        folder: &Path,
        flags: &[&str],
    ) -> Result<Server, BenchError> {
        let log: PathBuf = folder.join("server.log");
        let cannot = |what: &str| format!("cannot {what} {}", log.display());
        fs::create_dir_all(folder).map_err(BenchError::system(cannot("create the folder of")))?;
        let errors = File::create(&log).map_err(BenchError::system(cannot("write")))?;
        let child = Command::new(outboard)
            .args(["serve", "--driver", driver, "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(flags)
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(BenchError::system(format!("cannot start {}", outboard.display())))?;
        let mut server = Server { child, address: String::new() };
        let deadline = Instant::now() + STARTUP;
        while server.address.is_empty() {
            let ended = !matches!(server.child.try_wait(), Ok(None));
            let text = fs::read_to_string(&log).unwrap_or_default();
            match text.lines().find_map(listening_at) {
                Some(address) => server.address = address,
                None if ended || Instant::now() > deadline => {
                    return Err(BenchError::NoServer {
                        seconds: STARTUP.as_secs(),
                        log: log.display().to_string(),
                    });
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Ok(server)
    }

    /// By what a client recognises it over TLS: its certificate's fingerprint, as `outboard token`
    /// says it.
    pub(crate) fn fingerprint(outboard: &Path, folder: &Path) -> Result<String, BenchError> {
        let said = Command::new(outboard)
            .args(["token", "fingerprint", "--state"])
            .arg(folder.join("state/outboard"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(BenchError::system(format!("cannot start {}", outboard.display())))?;
        Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Its process; its workers are below.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            // It may have ended.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the log line that says the server is up.
fn listening_at(line: &str) -> Option<String> {
    let entry: serde_json::Value = serde_json::from_str(line).ok()?;
    let fields = entry.get("fields")?;
    (fields.get("message")? == "serving")
        .then(|| fields.get("address")?.as_str().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_names_the_address_is_found() {
        let line = r#"{"level":"INFO","fields":{"message":"serving","address":"127.0.0.1:4711"}}"#;
        assert_eq!(listening_at(line).as_deref(), Some("127.0.0.1:4711"));
        assert_eq!(listening_at(r#"{"fields":{"message":"stopping","address":"x"}}"#), None);
        assert_eq!(listening_at("not JSON"), None);
    }
}
