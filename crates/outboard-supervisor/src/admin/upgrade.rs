//! Upgrading a server to another release, from the administrator's side.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::{Admin, Answer, Ask, LOOKED_EVERY, Listing, Reply, is_closed, unexpected};

/// How long a server may take to say whether it becomes another release: for the check, and for
/// clients that are at their hello.
pub const DECISION: Duration = Duration::from_secs(120);
/// How long the other release may take to answer.
pub const ARRIVAL: Duration = Duration::from_secs(60);
/// How long the old program may take to go, once it has said so.
const LEAVING: Duration = Duration::from_secs(10);
/// After the process has ended, how long to look for another one in its place.
const RESTART: Duration = Duration::from_secs(5);
/// How long workers are waited for that do not answer the new release at once.
const LATE: Duration = Duration::from_secs(10);

/// A server says so when it is about to become another release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Becoming {
    /// The release that it is.
    pub software: String,
    /// Its process.
    pub process: u32,
    /// The path of the program that it becomes.
    pub program: PathBuf,
    /// Whether that is the file that it runs already.
    pub same_program: bool,
    /// The numbers of its sessions.
    pub sessions: Vec<String>,
}

/// A server has become another release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upgraded {
    /// The release that it was.
    pub from: String,
    /// The release that it is.
    pub software: String,
    /// The path of its program.
    pub program: PathBuf,
    /// Whether that is the file that it ran before.
    pub same_program: bool,
    /// Its process, the same as before.
    pub process: u32,
    /// Sessions that there were.
    pub sessions: usize,
    /// Those of them that went on.
    pub went_on: usize,
    /// Those whose workers have not answered the new release yet.
    pub unanswered: usize,
}

/// Why a server is not another release.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// It is as it was, as it says itself.
    #[error("{0}")]
    Stays(String),
    /// It cannot be asked, or does not answer.
    #[error("{0}")]
    Unanswered(io::Error),
    /// It has left the old release, and the new one does not serve.
    #[error("{0}")]
    Lost(String),
}

impl Admin {
    /// Has the server become the program that now has its path. Takes no longer than [`DECISION`]
    /// and [`ARRIVAL`], and some seconds.
    pub fn upgrade(mut self) -> Result<Upgraded, UpgradeError> {
        let lost = UpgradeError::Unanswered;
        self.stream.set_read_timeout(Some(DECISION)).map_err(lost)?;
        let becoming = match self.ask(Ask::Upgrade) {
            Ok(Answer::Becomes(becoming)) => becoming,
            Ok(other) => return Err(UpgradeError::Unanswered(unexpected(&other))),
            Err(error) if error.kind() == io::ErrorKind::Other => {
                return Err(UpgradeError::Stays(error.to_string()));
            }
            Err(error) => return Err(UpgradeError::Unanswered(error)),
        };
        let process = Process::open(becoming.process);
        self.stream.set_read_timeout(Some(LEAVING)).map_err(lost)?;
        match self.read::<Reply>() {
            Ok(Reply { answer: Answer::Error(sentence), .. }) => {
                return Err(UpgradeError::Stays(sentence));
            }
            Ok(Reply { answer, .. }) => return Err(UpgradeError::Unanswered(unexpected(&answer))),
            Err(error) if is_closed(&error) => {}
            Err(error) => return Err(UpgradeError::Unanswered(error)),
        }
        let listing = self.arrival(&becoming, &process)?;
        let ours: HashSet<&String> = becoming.sessions.iter().collect();
        Ok(Upgraded {
            went_on: listing.sessions.iter().filter(|session| ours.contains(&session.id)).count(),
            unanswered: listing.unanswered,
            software: listing.software,
            process: listing.process,
            sessions: becoming.sessions.len(),
            from: becoming.software,
            program: becoming.program,
            same_program: becoming.same_program,
        })
    }

    /// The answer of the new release once it serves.
    fn arrival(&self, becoming: &Becoming, process: &Process) -> Result<Listing, UpgradeError> {
        let program = becoming.program.display();
        let begun = Instant::now();
        let mut ended = None;
        loop {
            match Admin::connect(&self.path).and_then(|mut admin| admin.listing()) {
                Ok(listing) if listing.process != becoming.process => {
                    return Err(UpgradeError::Lost(format!(
                        "{program} ended soon after the server had become it; another process, {} ({}), serves now",
                        listing.process, listing.software
                    )));
                }
                Ok(listing) if listing.unanswered == 0 || begun.elapsed() > LATE => {
                    return Ok(listing);
                }
                Ok(_) | Err(_) => {}
            }
            if ended.is_none() && process.has_ended() {
                ended = Some(Instant::now());
            }
            if ended.is_some_and(|since| since.elapsed() > RESTART) {
                return Err(UpgradeError::Lost(format!(
                    "{program} ended soon after the server had become it"
                )));
            }
            if begun.elapsed() > ARRIVAL {
                let seconds = ARRIVAL.as_secs();
                return Err(UpgradeError::Lost(format!(
                    "the server has become {program}, and that has not answered for {seconds} seconds"
                )));
            }
            std::thread::sleep(LOOKED_EVERY);
        }
    }
}

/// A process whose end can be seen, unless it is hidden from here.
struct Process(Option<rustix::fd::OwnedFd>);

impl Process {
    fn open(number: u32) -> Process {
        let number = i32::try_from(number).ok().and_then(Pid::from_raw);
        Process(number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok()))
    }

    fn has_ended(&self) -> bool {
        let Some(process) = &self.0 else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ended| ended > 0)
    }
}
