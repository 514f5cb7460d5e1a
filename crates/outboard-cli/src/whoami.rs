//! What a server and a broker say of who this client is there.

use std::fmt::Write as _;

use jiff::Timestamp;
use miette::{IntoDiagnostic, Result};
use outboard_broker_client::{Blocking, Method};
use outboard_client::target::Target;
use outboard_pool::api::{Me, PoolView};
use outboard_pool::words::Condition;
use serde::Serialize;

use crate::failure::Failure;
use crate::pool::access::failed;
use crate::probe;

/// A server that answers.
#[derive(Debug, Serialize)]
pub(crate) struct Server {
    /// Whom it takes this client for; `None` if it is of a release that does not say.
    pub(crate) owner: Option<String>,
    /// When the token that was shown expires, if it does.
    pub(crate) expires: Option<Timestamp>,
    /// The names of its devices.
    pub(crate) devices: Vec<String>,
}

/// A pool whose broker answers.
#[derive(Debug, Serialize)]
pub(crate) struct Pool {
    owner: String,
    role: String,
    servers: usize,
    /// Those that get no leases now.
    unready: Vec<String>,
    devices: usize,
}

/// Connects to a server as programs would.
pub(crate) fn server(target: &Target) -> Result<Server, Failure> {
    let offer = probe::probe(target)?;
    let you = probe::who(target)?;
    let expires = you.as_ref().and_then(|you| you.expires);
    let expires = expires.and_then(|seconds| i64::try_from(seconds).ok());
    Ok(Server {
        owner: you.map(|you| you.owner),
        expires: expires.and_then(|seconds| Timestamp::from_second(seconds).ok()),
        devices: offer.platform.devices.into_iter().map(|device| device.name).collect(),
    })
}

/// Asks a broker.
pub(crate) fn pool(broker: &Blocking) -> Result<Pool, Failure> {
    let me: Me = broker.ask(Method::GET, "/v1/me").map_err(|error| failed(&error))?;
    let view: PoolView = broker.pool().map_err(|error| failed(&error))?;
    let unready = view.servers.iter().filter(|server| server.condition != Condition::Ready);
    Ok(Pool {
        owner: me.owner.to_string(),
        role: me.role.to_string(),
        servers: view.servers.len(),
        unready: unready.map(|server| server.name.to_string()).collect(),
        devices: view.servers.iter().map(|server| server.devices.len()).sum(),
    })
}

/// How near the end of a token is worth a warning.
const SOON: i64 = 14 * 24;

impl Server {
    /// Whom it takes this client for, and until when.
    pub(crate) fn who(&self) -> String {
        let owner = self.owner.as_deref().unwrap_or("it does not say who you are");
        match self.expires {
            Some(at) => format!("{owner}, until {at} ({})", left(at, Timestamp::now())),
            None => owner.to_owned(),
        }
    }

    /// How many devices it has, and which.
    pub(crate) fn what(&self) -> String {
        let mut text = count(self.devices.len(), "device");
        for (at, name) in self.devices.iter().enumerate() {
            let _ = write!(text, "{} {name}", if at == 0 { ":" } else { "," });
        }
        text
    }

    /// That the token ends soon, if it does.
    pub(crate) fn warning(&self, server: &str) -> Option<String> {
        let at = self.expires?;
        let hours = at.duration_since(Timestamp::now()).as_hours();
        (hours < SOON).then(|| {
            format!(
                "the token for {server} ends {}; ask whoever runs the server for another one (`outboard token create`)",
                left(at, Timestamp::now())
            )
        })
    }
}

impl Pool {
    /// Whom it takes this client for.
    pub(crate) fn who(&self) -> String {
        format!("{} ({})", self.owner, self.role)
    }

    /// Its servers and devices, as a sentence says it.
    pub(crate) fn what(&self) -> String {
        let (servers, devices) = (count(self.servers, "server"), count(self.devices, "device"));
        match self.unready.as_slice() {
            [] => format!("{servers}, {devices}"),
            unready => format!("{servers}, {devices}; not ready: {}", unready.join(", ")),
        }
    }
}

/// The time from now, as people say it.
fn left(at: Timestamp, now: Timestamp) -> String {
    match at.duration_since(now).as_hours() {
        hours if hours >= 48 => format!("in {} days", hours / 24),
        hours if hours >= 1 => format!("in {}", count(hours.unsigned_abs() as usize, "hour")),
        _ => "within the hour".to_owned(),
    }
}

pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A failure as a part of JSON.
pub(crate) fn problem(failure: &Failure) -> serde_json::Value {
    serde_json::json!({
        "code": failure.code().to_string(),
        "sentence": failure.to_string(),
        "help": failure.help(),
    })
}

/// Any JSON, for people and programs.
pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).into_diagnostic()? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_token_is_told_and_warned_of() {
        let now = Timestamp::now();
        let at = |hours: i64| now + jiff::SignedDuration::from_hours(hours);
        assert_eq!(left(at(90 * 24 + 1), now), "in 90 days");
        assert_eq!(left(at(1), now), "in 1 hour");
        assert_eq!(left(at(0), now), "within the hour");
        let server = |expires| Server {
            owner: Some("alice".into()),
            expires,
            devices: vec!["A".into(), "B".into()],
        };
        assert_eq!(server(None).who(), "alice");
        assert_eq!(server(None).what(), "2 devices: A, B");
        assert!(server(None).warning("gpu1").is_none());
        assert!(server(Some(at(90 * 24))).warning("gpu1").is_none());
        assert!(server(Some(at(60))).warning("gpu1").unwrap().contains("gpu1 ends in 2 days"));
    }
}
