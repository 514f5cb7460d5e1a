//! Notifies systemd of the server's state, if systemd asks for that.

use std::time::Duration;

use sd_notify::NotifyState;

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd cannot be told");
    }
}

/// Clients can connect.
pub(super) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// No new sessions from now on.
pub(super) fn stopping(sessions: usize) {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status(&format!("stopping: {sessions} sessions may finish")),
    ]);
}

/// Another release takes over.
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now, NotifyState::Status("becoming another release")]);
    }
}

/// Repeats that the server is alive, if systemd watches it.
pub(super) async fn watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let pause = (limit / 2).max(Duration::from_millis(100));
    loop {
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(pause).await;
    }
}
