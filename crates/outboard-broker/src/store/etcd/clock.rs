//! A clock that goes on while the machine sleeps: etcd's does, too.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The time since the machine has started.
pub(super) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
