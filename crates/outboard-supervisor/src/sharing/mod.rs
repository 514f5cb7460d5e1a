//! How clients share a server's devices: exclusive use, limits of sessions, and the queue.

mod admission;
mod lending;
mod queue;
mod tenure;

use std::collections::BTreeMap;
use std::time::Duration;

pub(super) use admission::{Held, Request};
pub(super) use lending::{Lending, Shared};
pub(super) use queue::{AdmittedPlace, Queue, Turned};

use crate::command::WorkerCommand;
use outboard_control::identity::Limits;

/// Whether a device is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Sessions of any owner.
    #[default]
    Shared,
    /// Sessions of one owner; of clients that have shown nothing, those of one machine.
    Exclusive,
}

/// The modes of all devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes {
    /// Of devices that are not named.
    pub usual: Mode,
    /// Of those that are, by index.
    pub named: BTreeMap<u32, Mode>,
}

/// Settings for all clients, beside their own limits.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The limits of a session, and of an owner's sessions together.
    pub limits: Limits,
    /// Which devices are shared.
    pub modes: Modes,
    /// Bytes of each device's memory for all sessions together.
    pub memory: Option<u64>,
    /// Sessions at once.
    pub sessions: Option<usize>,
    /// How many clients may wait in the queue; the others are refused at once.
    pub queue: usize,
    /// How long each of them may wait.
    pub patience: Option<Duration>,
    /// Whether idle sessions lend their memory.
    pub oversubscribe: Option<Oversubscribe>,
    /// Starts `outboard_worker::suspend::run`, with an action and a process added. Needed as soon
    /// as any session may be suspended.
    pub helper: Option<WorkerCommand>,
}

/// How idle sessions lend their memory.
#[derive(Debug, Clone)]
pub struct Oversubscribe {
    /// How long a session must not have been heard of.
    pub idle: Duration,
    /// Bytes of the host's memory that suspended sessions may take; what is free there unless this
    /// says so.
    pub host_memory: Option<u64>,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text.trim() {
            "shared" => Ok(Mode::Shared),
            "exclusive" => Ok(Mode::Exclusive),
            other => Err(format!("`{other}` is neither shared nor exclusive")),
        }
    }
}

impl std::str::FromStr for Modes {
    type Err = String;

    /// `exclusive`, or `0=exclusive,1=shared`, or both: `shared,2=exclusive`.
    fn from_str(text: &str) -> Result<Modes, String> {
        let mut modes = Modes::default();
        for part in text.split(',') {
            match part.split_once('=') {
                None => modes.usual = part.parse()?,
                Some((index, mode)) => {
                    let index = index.trim();
                    let index = index
                        .parse()
                        .map_err(|_| format!("`{index}` is not the index of a device"))?;
                    modes.named.insert(index, mode.parse()?);
                }
            }
        }
        Ok(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_for_all_or_by_device() {
        assert_eq!("shared".parse(), Ok(Modes::default()));
        let mixed: Modes = "exclusive, 1=shared,3 = exclusive".parse().unwrap();
        assert_eq!((mixed.usual, mixed.named.len()), (Mode::Exclusive, 2));
        assert_eq!(mixed.named[&1], Mode::Shared);
        for text in ["", "mine", "0", "x=shared", "0=", "0=mine"] {
            assert!(text.parse::<Modes>().is_err(), "{text}");
        }
    }
}
