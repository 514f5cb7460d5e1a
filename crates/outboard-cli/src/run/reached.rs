//! A lease whose servers can be reached from here: one that has others is given back for another.

use std::time::Duration;

use outboard_client::link::{Config, queue_patience};
use outboard_client::own_settings;
use outboard_client::target::Target;
use outboard_pool::api::Reach;
use outboard_pool::words::{MOST_AVOIDED, ServerName};

use super::leased::{Leased, Need, say};
use crate::failure::Failure;
use crate::probe;

/// So many leases are tried.
const TRIES: usize = 5;

const HELP: &str =
    "`outboard pool` shows the servers and their addresses; tell whoever runs the pool";

/// A lease whose servers keep a place for the program.
pub(super) fn acquire(need: &Need, no_wait: bool) -> Result<Leased, Failure> {
    let patience = if no_wait { Some(Duration::ZERO) } else { queue_patience() };
    let mut leased = need.lease(&[])?;
    let mut avoid: Vec<ServerName> = Vec::new();
    let mut tries = 1;
    while let Err(Lost { servers, failure }) = reserve(&leased, patience) {
        let number = leased.number();
        leased.give_back();
        if tries == TRIES {
            return Err(failure);
        }
        say(&format!("{failure}; lease {number} is given back for devices of other servers"));
        avoid.extend(servers);
        avoid.truncate(MOST_AVOIDED);
        leased = match need.lease(&avoid) {
            Ok(leased) => leased,
            Err(none) => {
                say(&format!("there are none: {none}"));
                return Err(failure);
            }
        };
        tries += 1;
    }
    Ok(leased)
}

/// Servers of a lease that keep no place for the program, and why the first of them does not.
struct Lost {
    servers: Vec<ServerName>,
    failure: Failure,
}

impl Lost {
    fn new(failed: &[(&Reach, Failure)]) -> Option<Lost> {
        let (server, failure) = failed.first()?;
        let name = &server.name;
        let sentence =
            format!("the pool has given a device of {name}, which cannot be used: {failure}");
        Some(Lost {
            servers: failed.iter().map(|(server, _)| server.name.clone()).collect(),
            failure: Failure::new(failure.code(), sentence, HELP),
        })
    }
}

/// Has all of the lease's servers keep a place.
fn reserve(leased: &Leased, patience: Option<Duration>) -> Result<(), Lost> {
    let variables = leased.variables();
    let own = variables.get(own_settings::VARIABLE).map(|text| text.to_string_lossy());
    let (mut servers, mut failed) = (Vec::new(), Vec::new());
    for reach in leased.servers() {
        match reach.address.parse::<Target>() {
            Ok(target) => {
                let config = Config::with_own(&target, own.as_deref());
                servers.push((reach, probe::Server { target, config }));
            }
            Err(error) => failed.push((reach, Failure::from(error))),
        }
    }
    let (reaches, servers): (Vec<&Reach>, Vec<probe::Server>) = servers.into_iter().unzip();
    let outcomes = probe::reserve_each(&servers, patience);
    let outcomes = reaches.into_iter().zip(outcomes);
    failed.extend(outcomes.filter_map(|(reach, outcome)| Some((reach, outcome.err()?))));
    Lost::new(&failed).map_or(Ok(()), Err)
}
