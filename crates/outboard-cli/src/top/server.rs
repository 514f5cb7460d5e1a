//! A server on this machine, as it is shown.

use std::sync::mpsc;
use std::time::Duration;

use miette::{IntoDiagnostic, Result};
use outboard_client::target::Target;
use outboard_supervisor::admin::Admin;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;

use super::look::Look;
use super::screen::Shown;
use super::state::{Sort, TopState};
use super::view;
use crate::admin::{self, AdminArgs};
use crate::gauges::{Gauge, Gauges};
use crate::sessions::Rates;

/// The first answer about devices is waited for: it is what was asked.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

pub(super) struct Server {
    admin: Admin,
    rates: Rates,
    devices: mpsc::Receiver<Vec<Gauge>>,
    gauges: Vec<Gauge>,
    /// Whether the next look is to have devices, however long they take.
    waits_for_devices: bool,
    state: TopState,
}

impl Server {
    pub(super) fn connect(
        args: &AdminArgs,
        sort: Sort,
        interval: Duration,
        waits_for_devices: bool,
    ) -> Result<Server> {
        let mut admin = args.connect()?;
        let listing = admin.listing().map_err(|error| admin::failed(&error))?;
        let mut rates = Rates::default();
        let socket = listing.socket.as_ref().and_then(|path| format!("unix:{path}").parse().ok());
        let server = socket.unwrap_or_else(|| args.server.clone());
        rates.take(listing);
        let devices = watch_devices(server, interval);
        let state = TopState::new(sort);
        Ok(Server { admin, rates, devices, gauges: Vec::new(), waits_for_devices, state })
    }
}

/// Asks how devices do, in a thread of its own: a busy server's NVML may take its time.
fn watch_devices(server: Target, interval: Duration) -> mpsc::Receiver<Vec<Gauge>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut gauges = Gauges::open(&server);
        loop {
            let devices = gauges.as_ref().and_then(Gauges::read);
            if devices.is_none() {
                gauges = Gauges::open(&server);
            }
            // Nobody looks any more when the process ends.
            if send.send(devices.unwrap_or_default()).is_err() {
                return;
            }
            std::thread::sleep(interval);
        }
    });
    receive
}

impl Shown for Server {
    fn refresh(&mut self) -> Result<()> {
        if self.waits_for_devices && self.gauges.is_empty() {
            self.gauges = self.devices.recv_timeout(FIRST_ANSWER).unwrap_or_default();
        }
        if let Some(newest) = self.devices.try_iter().last() {
            self.gauges = newest;
        }
        let listing = self.admin.listing().map_err(|error| admin::failed(&error))?;
        let server = self.rates.take(listing);
        self.state.take(Look { server, devices: self.gauges.clone() });
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
            return Ok(serde_json::to_string(self.state.look()).into_diagnostic()? + "\n");
        }
        Ok(view::text(&self.state))
    }
}
