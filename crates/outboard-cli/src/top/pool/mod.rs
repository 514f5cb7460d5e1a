//! A pool, as it is shown.

mod state;
mod view;

use std::sync::mpsc;
use std::time::Duration;

use miette::{IntoDiagnostic, Result};
use outboard_broker_client::{AskError, Blocking};
use outboard_pool::api::PoolView;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;

use self::state::PoolState;
use super::screen::Shown;
use crate::pool::access::failed;

type Look = Result<PoolView, AskError>;

pub(super) struct Pool {
    looks: mpsc::Receiver<Look>,
    /// What came before the first refresh.
    first: Option<PoolView>,
    state: PoolState,
    interval: Duration,
}

fn look(broker: &Blocking) -> Look {
    broker.pool()
}

impl Pool {
    /// Looks for the first time: a broker that refuses is no pool to show.
    pub(super) fn connect(broker: Blocking, interval: Duration) -> Result<Pool> {
        let first = look(&broker).map_err(|error| failed(&error))?;
        let looks = keep_looking(broker, interval)?;
        Ok(Pool { looks, first: Some(first), state: PoolState::default(), interval })
    }
}

/// Looks again and again, in a thread of its own: keys do not wait for a broker that is away.
fn keep_looking(broker: Blocking, interval: Duration) -> Result<mpsc::Receiver<Look>> {
    let (send, receive) = mpsc::sync_channel(1);
    let work = move || {
        loop {
            std::thread::sleep(interval);
            // Nobody looks any more when the process ends.
            if send.send(look(&broker)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("looks".into()).spawn(work).into_diagnostic()?;
    Ok(receive)
}

impl Shown for Pool {
    fn refresh(&mut self) -> Result<()> {
        if let Some(first) = self.first.take() {
            self.state.take(first);
            return Ok(());
        }
        // On time, if the broker answers at once.
        let newest = self.looks.recv_timeout(self.interval / 2).ok();
        match self.looks.try_iter().last().or(newest) {
            Some(Ok(view)) => self.state.take(view),
            Some(Err(error)) if error.may_pass() => self.state.miss(error.to_string()),
            Some(Err(error)) => return Err(failed(&error).into()),
            None => {}
        }
        Ok(())
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        view::draw(frame, &mut self.state);
    }

    fn key(&mut self, key: KeyCode) -> bool {
        self.state.key(key)
    }

    fn text(&self, json: bool) -> Result<String> {
        if json {
            return Ok(serde_json::to_string(self.state.view()).into_diagnostic()? + "\n");
        }
        Ok(view::text(&self.state))
    }
}
