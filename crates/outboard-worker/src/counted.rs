//! A worker without a supervisor, with a client that reads and a device, for counting the cost of
//! commands.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use outboard_driver::Table;
use outboard_session::server::Incoming;
use outboard_transport::{Capabilities, Interest, Readiness, Stream, Waker};
use outboard_wire::handshake::{Process, Refusal, RefusalCode};
use outboard_wire::platform::{Device, Platform};

use outboard_control::identity::Identity;

use super::io::{Handler, Replier, Start};
use super::output::Output;
use super::prepared::{Prepared, Setup};
use super::worker::Worker;

/// The worker, and where its commands come from.
pub struct Counted {
    worker: Worker,
    replier: Replier,
    incoming: Incoming,
}

/// Takes whatever is written, and never has anything to read.
#[derive(Debug)]
struct Nowhere;

impl Stream for Nowhere {
    fn read(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(buffers.iter().map(|buffer| buffer.len()).sum())
    }

    fn wait(
        &self,
        _interest: Interest,
        _waker: Option<&Waker>,
        _timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
        Ok(Readiness::default())
    }

    fn shutdown(&self) -> io::Result<()> {
        Ok(())
    }

    fn abandon(&self) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { quick: true, ..Capabilities::default() }
    }

    fn transport(&self) -> &'static str {
        "none"
    }

    fn peer(&self) -> String {
        "nobody".to_owned()
    }
}

impl Counted {
    /// A worker for one device, whose driver is the table. It catches this process's standard
    /// output.
    pub fn new(table: &'static Table) -> Result<Counted, Refusal> {
        let (worker, replier) = alone(table, Output::catch().map_err(|error| failed(&error))?)?;
        Ok(Counted { worker, replier, incoming: Incoming::new() })
    }

    /// How many commands have failed.
    pub fn failures(&self) -> u64 {
        outboard_control::meter::page().failures()
    }

    /// Decodes and executes a client's commands: whole commands, as the dispatcher does it.
    #[inline(never)]
    pub fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        self.incoming.buffer().push(bytes);
        while let Some(command) = self.incoming.next_command().map_err(invalid)? {
            self.worker.command(command, &self.replier);
            self.worker.poll();
        }
        self.worker.caught_up();
        Ok(())
    }
}

pub(super) fn failed(error: &io::Error) -> Refusal {
    Refusal { code: RefusalCode::WorkerFailed, sentence: error.to_string() }
}

/// A worker for one device, whose driver is the table, and where its answers go.
pub(super) fn alone(table: &'static Table, output: Output) -> Result<(Worker, Replier), Refusal> {
    let device = Device { name: "none".to_owned(), total_memory: 1 << 40, ..Device::default() };
    let platform = Platform {
        driver_version: 13_000,
        driver_name: String::new(),
        devices: vec![device],
        lacks: Vec::new(),
    };
    // SAFETY: no library is loaded: the table is there.
    let setup = unsafe { Setup::new("", "none") };
    let prepared = Prepared::of(setup, table, platform, output);
    let replier = Replier::to(Arc::new(Nowhere)).map_err(|error| failed(&error))?;
    let start = Start {
        session: 1,
        key: 0,
        lanes: 1,
        probe: false,
        devices: Vec::new(),
        client: String::new(),
        process: Process::default(),
        identity: Identity::anonymous(),
        secure: None,
        lends: false,
        only_questions: false,
        parts: Vec::new(),
        supervisor: 0,
        guest: false,
        grace: None,
        local: None,
        peers: None,
        window: None,
        rdma: None,
        client_has_adapters: false,
        no_region: None,
        platform: None,
    };
    Ok((Worker::new(prepared, &start)?, replier))
}
