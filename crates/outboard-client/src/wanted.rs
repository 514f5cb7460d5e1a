//! The servers and devices that this process uses: all of its list, or those of its rank.

use std::sync::OnceLock;

use crate::query::Query;
use crate::target::{Choice, Target, TargetError, Targets};

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
    let chosen = listed.of_this_process(count_by_query)?;
    Ok(OF_RANK.get_or_init(|| chosen).clone())
}

fn count_by_query(server: &Target) -> Result<usize, TargetError> {
    let query = Query::open(server).map_err(|_| TargetError::NotCounted(server.to_string()))?;
    Ok(query.platform().devices.len())
}

impl Targets {
    /// What this process uses of the list: all of it, or the one device of its rank. For that,
    /// `count` asks a server that several ranks have in common how many devices it has.
    pub fn of_this_process<E: From<TargetError>>(
        &self,
        count: impl FnOnce(&Target) -> Result<usize, E>,
    ) -> Result<Targets, E> {
        let Some(by_rank) = self.by_rank() else { return Ok(self.clone()) };
        let rank = by_rank.rank()?.ok_or_else(|| by_rank.unknown())?;
        let device = match self.of_rank(rank) {
            Choice::Device(device) => device,
            Choice::Nth(server, number) => {
                let devices = u32::try_from(count(&server)?).unwrap_or(u32::MAX);
                let uncounted = || TargetError::NotCounted(server.to_string());
                server.with_only(number.checked_rem(devices).ok_or_else(uncounted)?)
            }
        };
        Ok(Targets::alone(device))
    }
}
