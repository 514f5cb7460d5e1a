//! Asking for a lease, and waiting for it.

use std::time::{Duration, Instant};

use outboard_broker_client::{AskError, Blocking, Method};
use outboard_pool::api::{Ask, Grant, JobAsk, Standing};
use outboard_pool::words::Request;
use outboard_wire::Code;
use serde::Serialize;

use super::access::failed;
use crate::failure::Failure;

/// A broker that is started anew is away for a moment: those who wait already wait for it, too.
const RESTART: Duration = Duration::from_secs(60);
/// How long to wait before a broker that is away is asked again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// How long the broker may keep each question after a request waiting.
const POLL: &str = "wait_ms=5000";

/// What a broker may be asked for.
pub(crate) trait Asked: Serialize {
    /// Where.
    const PATH: &str;

    /// What is wanted.
    fn request(&mut self) -> &mut Request;

    /// Why a broker did not do it.
    fn failed(error: &AskError) -> Failure {
        failed(error)
    }
}

impl Asked for Ask {
    const PATH: &str = "/v1/requests";

    fn request(&mut self) -> &mut Request {
        &mut self.request
    }
}

impl Asked for JobAsk {
    const PATH: &str = "/v1/jobs";

    fn request(&mut self) -> &mut Request {
        &mut self.request
    }

    fn failed(error: &AskError) -> Failure {
        match error {
            AskError::Refused { status: 404, .. } => Failure::new(
                Code::BrokerDeclined,
                "the broker is of an earlier release, which makes no keys for jobs",
                "update the broker",
            ),
            _ => failed(error),
        }
    }
}

/// Asks again while the broker is away and there is time.
pub(crate) fn patiently<T>(
    until: Option<Instant>,
    say: &dyn Fn(&str),
    ask: impl Fn() -> Result<T, AskError>,
) -> Result<T, Failure> {
    patiently_or(until, say, failed, ask)
}

fn patiently_or<T>(
    until: Option<Instant>,
    say: &dyn Fn(&str),
    failed: fn(&AskError) -> Failure,
    ask: impl Fn() -> Result<T, AskError>,
) -> Result<T, Failure> {
    let mut is_told = false;
    loop {
        match ask() {
            Err(error) if error.may_pass() && until.is_some_and(|end| Instant::now() < end) => {
                if !std::mem::replace(&mut is_told, true) {
                    say(&format!("{error}; waiting for it"));
                }
                std::thread::sleep(PAUSE);
            }
            answer => return answer.map_err(|error| failed(&error)),
        }
    }
}

/// Waits in the queue, and says at which place and why.
pub(crate) fn wait<A: Asked>(
    broker: &Blocking,
    mut ask: A,
    until: Option<Instant>,
    say: &dyn Fn(&str),
) -> Result<Grant, Failure> {
    let ask_for = ask.request().wait_seconds;
    let begin = Instant::now();
    let request = |ask: &A, until| {
        let tell = || broker.tell::<Standing>(Method::POST, A::PATH, ask);
        patiently_or(until, say, A::failed, tell)
    };
    // It has just answered: if it is away now, it is being started anew.
    let again = until.or_else(|| (ask_for > 0).then(|| begin + RESTART));
    let mut standing = request(&ask, again)?;
    let mut told = None;
    loop {
        let ticket = match standing {
            Standing::Granted(grant) => return Ok(grant),
            Standing::Waiting { ticket, place, of, because } => {
                let now = (place, because);
                if told.as_ref() != Some(&now) {
                    say(&format!("waiting at place {place} of {of}: {}", now.1));
                    told = Some(now);
                }
                ticket
            }
        };
        let path = format!("/v1/requests/{ticket}?{POLL}");
        let again = Some(until.unwrap_or_else(|| Instant::now() + RESTART));
        let waited = begin.elapsed().as_secs();
        standing = match broker.ask(Method::GET, &path) {
            Ok(standing) => standing,
            // The queue is gone with the broker that had it.
            Err(AskError::Refused { status: 404, .. }) => {
                say("the broker has forgotten the request; asking again");
                let waited = u32::try_from(waited).unwrap_or(u32::MAX);
                if ask_for < u32::MAX {
                    ask.request().wait_seconds = ask_for.saturating_sub(waited).max(1);
                }
                request(&ask, again)?
            }
            Err(error) if error.may_pass() => {
                patiently(again, say, || match broker.ask(Method::GET, &path) {
                    // Told above, when it is asked once more.
                    Err(AskError::Refused { status: 404, .. }) => Ok(None),
                    answer => answer.map(Some),
                })?
                .map_or_else(|| request(&ask, again), Ok)?
            }
            Err(error) => return Err(failed(&error)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_knows_no_jobs_is_to_be_updated() {
        let refused = |status| AskError::Refused { status, sentence: "no".into() };
        let failure = JobAsk::failed(&refused(404));
        assert!(failure.to_string().contains("earlier release"), "{failure}");
        assert_eq!(failure.help(), "update the broker");
        assert_eq!(JobAsk::failed(&refused(409)).to_string(), "no");
        assert_eq!(Ask::failed(&refused(404)).to_string(), "no");
    }
}
