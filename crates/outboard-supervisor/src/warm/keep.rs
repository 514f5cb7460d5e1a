//! Keeps as many workers warm as are wanted.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Pause, Warm, from_now};
use crate::supervisor::Supervisor;
use crate::workers::Worker;

impl Warm {
    /// Starts workers whenever there are fewer than wanted, and ends those that are not any more.
    /// Never ends.
    pub(crate) async fn keep(supervisor: Rc<Supervisor>) {
        let this = &supervisor.warm;
        loop {
            let changed = this.changed.notified();
            if this.stopping.get() {
                changed.await;
                continue;
            }
            let wanted = this.wanted(supervisor.sessions_left());
            let there = this.len();
            if there >= wanted {
                this.dismiss(there - wanted);
                let fall = this.demand.borrow().next_fall();
                let _ = timeout(fall.map_or(Duration::MAX, from_now), changed).await;
                continue;
            }
            match this.pause() {
                Pause::No => {}
                // A session that takes a worker meanwhile prolongs the pause; stopping ends it.
                Pause::For(pause) => {
                    let _ = timeout(pause, changed).await;
                    continue;
                }
                Pause::UntilChanged => {
                    changed.await;
                    continue;
                }
            }
            this.pace.borrow_mut().started();
            match Worker::spawn(&supervisor.worker_order()) {
                Ok(worker) => this.watch(worker),
                Err(error) => {
                    tracing::warn!(%error, "cannot start a worker ahead of its client");
                    this.failed();
                }
            }
        }
    }
}
