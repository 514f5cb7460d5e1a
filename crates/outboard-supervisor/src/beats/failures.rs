//! Devices that nobody can be given, for the server's log.

use std::collections::BTreeMap;

use outboard_control::messages::Gauge;

/// The devices that have failed, and why.
#[derive(Default)]
pub(super) struct Failures(BTreeMap<String, String>);

impl Failures {
    /// Says which devices have failed since the last time, and which are well again.
    pub(super) fn hear(&mut self, gauges: &[Gauge]) {
        for Gauge { uuid, ordinal, failure, .. } in gauges {
            match failure {
                Some(reason) if self.0.get(uuid) != Some(reason) => {
                    tracing::warn!(
                        device = ordinal,
                        uuid,
                        reason,
                        "a device has failed: the pool gives it to nobody"
                    );
                    self.0.insert(uuid.clone(), reason.clone());
                }
                None if self.0.remove(uuid).is_some() => {
                    tracing::info!(
                        device = ordinal,
                        uuid,
                        "a device that had failed is well again"
                    );
                }
                _ => {}
            }
        }
    }
}
