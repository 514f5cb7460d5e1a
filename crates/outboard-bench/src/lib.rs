//! `outboard bench`: measures the same operations and applications natively and through servers on
//! the same machine, in one run and in turns, so that every figure is a ratio to native.
//!
//! The program that measures has a *participant* for each way of reaching the device: a process of
//! its own, whose `libcuda.so.1` is the native driver or Outboard's client library. Participants
//! stay alive side by side and are asked for one short turn after the other, native first, then
//! each transport, round by round; whatever else happens on the machine hits all of them alike. CPU
//! time is read around each turn, of the participant and of its server.

pub mod apps;
pub mod child;
mod lab;
pub mod link;
pub mod machine;
pub mod measures;
mod numbers;
pub mod page;
mod participant;
mod processor;
pub mod protocol;
pub mod results;
pub mod runner;
mod servers;
pub mod statistics;
mod streams;
pub mod targets;

/// Why measuring cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A process cannot be started or spoken with.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A server did not come up.
    #[error("the server did not come up within {seconds} s; its log is {log}")]
    NoServer {
        /// How long it was waited for.
        seconds: u64,
        /// Where its log is.
        log: String,
    },
    /// A file that people keep does not say what it should.
    #[error("{file}: {reason}")]
    File {
        /// Which file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Nothing was measured, for the reason given.
    #[error("{0}")]
    Nothing(String),
    /// A plot cannot be drawn.
    #[error("the plot {0} cannot be drawn: {1}")]
    Plot(String, String),
}

impl BenchError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> BenchError {
        let what = what.into();
        move |error| BenchError::System { what, error }
    }
}
