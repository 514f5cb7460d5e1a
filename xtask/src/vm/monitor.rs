//! QEMU's monitor, by its protocol QMP: a line of JSON for each command and each answer.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to the monitor of a machine.
pub(crate) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Connects to the one that listens there.
    pub(crate) fn connect(path: &Path) -> Result<Monitor> {
        let stream = UnixStream::connect(path)
            .with_context(|| format!("cannot connect to QEMU's monitor at {}", path.display()))?;
        let mut monitor = Monitor(BufReader::new(stream));
        // Its greeting.
        monitor.next()?;
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Has a command without arguments executed.
    pub(crate) fn execute(&mut self, command: &str) -> Result<()> {
        let line = format!("{}\n", json!({ "execute": command }));
        self.0.get_mut().write_all(line.as_bytes()).context("cannot write to QEMU's monitor")?;
        loop {
            let said = self.next()?;
            if said.get("error").is_some() {
                bail!("QEMU's monitor refuses `{command}`: {said}");
            }
            // What is neither tells of an event.
            if said.get("return").is_some() {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).context("cannot read from QEMU's monitor")?;
        if read == 0 {
            bail!("QEMU's monitor has closed the connection");
        }
        serde_json::from_str(&line).context("QEMU's monitor says what is no JSON")
    }
}
