//! The servers and devices that this process uses: all of its list, or those of its rank.

use std::sync::OnceLock;

use crate::query::Query;
use crate::target::{Choice, TargetError, Targets};

/// What the list of the environment means for this process.
pub fn of_this_process() -> Result<Targets, TargetError> {
    // A rank may have had to ask a server, and goes on using what it has found.
    static OF_RANK: OnceLock<Targets> = OnceLock::new();
    if let Some(found) = OF_RANK.get() {
        return Ok(found.clone());
    }
    let listed = Targets::from_env()?;
    if listed.by_rank().is_none() {
        return Ok(listed);
    }
    let chosen = listed.of_this_process()?;
    Ok(OF_RANK.get_or_init(|| chosen).clone())
}

impl Targets {
    /// What this process uses of the list: all of it, or the one device of its rank. For that,
    /// asks a server that several ranks have in common how many devices it has.
    pub fn of_this_process(&self) -> Result<Targets, TargetError> {
        let Some(by_rank) = self.by_rank() else { return Ok(self.clone()) };
        let rank = by_rank.rank()?.ok_or_else(|| by_rank.unknown())?;
        let device = match self.of_rank(rank) {
            Choice::Device(device) => device,
            Choice::Nth(server, number) => {
                let uncounted = || TargetError::NotCounted(server.to_string());
                let query = Query::open(&server).map_err(|_| uncounted())?;
                let devices = u32::try_from(query.platform().devices.len()).unwrap_or(u32::MAX);
                server.with_only(number.checked_rem(devices).ok_or_else(uncounted)?)
            }
        };
        Ok(Targets::alone(device))
    }
}
