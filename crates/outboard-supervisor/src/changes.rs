//! Waiting for changes.

use tokio::sync::Notify;

/// Waits until something is so. Every change wakes all waiting tasks.
pub(crate) async fn until(changed: &Notify, is_so: impl Fn() -> bool) {
    loop {
        let changed = changed.notified();
        if is_so() {
            break;
        }
        changed.await;
    }
}
