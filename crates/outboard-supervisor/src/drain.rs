//! Stopping: after the signal there are no new sessions, and existing ones have a while to finish.

use std::cell::Cell;
use std::time::Duration;

use outboard_wire::handshake::{Purpose, Refusal, RefusalCode};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::changes::until;
use super::sessions::Sessions;
use super::upgrade::Asker;

/// How often the log says what is waited for.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The signals that a server acts on.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    upgrade: Signal,
}

/// The meaning of a signal.
pub(super) enum Asked {
    /// To stop; the signal's name, or why there is nothing left to do.
    Stop(&'static str),
    /// Become the program that now has this one's path.
    Upgrade(Asker),
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Signals> {
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt, upgrade: signal(SignalKind::user_defined2())? })
    }

    /// The next request, by a signal or by an administrator.
    pub(super) async fn next(&mut self, askers: &mut mpsc::UnboundedReceiver<Asker>) -> Asked {
        tokio::select! {
            biased;
            signal = Signals::stop(&mut self.terminate, &mut self.interrupt) => Asked::Stop(signal),
            _ = self.upgrade.recv() => Asked::Upgrade(Asker::signal()),
            Some(asker) = askers.recv() => Asked::Upgrade(asker),
        }
    }

    /// The next signal that stops the server; its name.
    pub(super) async fn next_stop(&mut self) -> &'static str {
        Signals::stop(&mut self.terminate, &mut self.interrupt).await
    }

    async fn stop(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    }
}

/// Whether the server is stopping.
#[derive(Default)]
pub(super) struct Drain {
    begun: Cell<bool>,
    paused: Cell<bool>,
    changed: Notify,
}

impl Drain {
    /// From now on, there are no new sessions.
    pub(super) fn begin(&self) {
        self.begun.set(true);
        self.changed.notify_waiters();
    }

    /// Waits until the server is stopping.
    pub(super) async fn begun(&self) {
        until(&self.changed, || self.has_begun()).await;
    }

    /// Whether it has.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Why a client that comes now for this purpose is turned away, if it is. Sessions that go on
    /// may open lanes until they end.
    pub(super) fn refusal(&self, purpose: &Purpose) -> Option<Refusal> {
        let new = !matches!(
            purpose,
            Purpose::Lane { .. } | Purpose::Memory { .. } | Purpose::Resume { .. }
        );
        (self.begun.get() && new).then(|| Refusal {
            code: RefusalCode::Stopping,
            sentence:
                "the server is stopping and takes no new sessions; try again once it runs again"
                    .to_owned(),
        })
    }
}

impl Drain {
    /// Sets whether waiting clients are refused because another release takes over.
    pub(super) fn pause(&self, paused: bool) {
        self.paused.set(paused);
    }

    /// Why a waiting client will get no place, if so.
    pub(super) fn refusal_in_queue(&self, purpose: &Purpose) -> Option<Refusal> {
        let upgraded = || Refusal {
            code: RefusalCode::Stopping,
            sentence: "the server becomes another release, and its queue begins anew; try again"
                .to_owned(),
        };
        self.refusal(purpose).or_else(|| self.paused.get().then(upgraded))
    }
}

/// Waits until the sessions have ended, the time is up, or the next signal comes.
pub(super) async fn wait(sessions: &Sessions, time: Duration, signals: &mut Signals) {
    let deadline = Instant::now() + time;
    let report = async {
        let mut ticks = interval(REPORT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let seconds = deadline.saturating_duration_since(Instant::now()).as_secs();
            let waiting = sessions.names().join(", ");
            tracing::info!(
                sessions = sessions.len(),
                waiting,
                seconds,
                "waiting for sessions to end; the next signal ends them"
            );
        }
    };
    let end = async {
        tokio::select! {
            biased;
            () = sessions.all_gone() => "all have ended",
            signal = signals.next_stop() => signal,
            () = report => "",
        }
    };
    match timeout_at(deadline, end).await {
        Ok(reason) => tracing::debug!(reason, "the wait for sessions is over"),
        Err(_) => tracing::warn!(
            sessions = sessions.len(),
            seconds = time.as_secs(),
            "the time for sessions to end is up; they are ended"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_go_on_may_open_lanes() {
        let drain = Drain::default();
        let (lane, session) =
            (Purpose::Lane { session: 1, key: 2 }, Purpose::Session { devices: Vec::new() });
        assert!(drain.refusal(&session).is_none());
        drain.begin();
        assert_eq!(
            drain.refusal(&session).map(|refusal| refusal.code),
            Some(RefusalCode::Stopping)
        );
        assert_eq!(
            drain.refusal(&Purpose::Probe).map(|refusal| refusal.code),
            Some(RefusalCode::Stopping)
        );
        assert!(drain.refusal(&lane).is_none());
    }
}
