//! How sessions and devices did lately.

use super::look::Look;
use super::series::Series;

/// Numbers by the session or device that they are of.
#[derive(Default)]
pub(super) struct Recent {
    sessions: Series,
    busy: Series,
    memory: Series,
}

impl Recent {
    /// Keeps what this look says; sessions that it does not contain are dropped.
    pub(super) fn take(&mut self, look: &Look) {
        let sessions = look.server.sessions.iter();
        let calls = sessions.map(|one| (one.session.id.as_str(), Some(one.calls_per_second)));
        self.sessions.take(calls);
        let devices = look.devices.iter();
        let busy = |gauge: &crate::gauges::Gauge| gauge.utilisation.map(f64::from);
        self.busy.take(devices.clone().map(|gauge| (gauge.uuid.as_str(), busy(gauge))));
        self.memory.take(devices.map(|gauge| (gauge.uuid.as_str(), gauge.used_part())));
    }

    /// Calls a second, beside the most of them.
    pub(super) fn of_session(&self, id: &str, cells: usize) -> String {
        self.sessions.beside_most(id, cells)
    }

    /// Utilisation, beside all that there could be.
    pub(super) fn utilisation(&self, uuid: &str, cells: usize) -> String {
        self.busy.beside(100.0, uuid, cells)
    }

    /// Memory in use, beside all that there is.
    pub(super) fn memory(&self, uuid: &str, cells: usize) -> String {
        self.memory.beside(1.0, uuid, cells)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.busy.is_empty() && self.memory.is_empty()
    }
}
