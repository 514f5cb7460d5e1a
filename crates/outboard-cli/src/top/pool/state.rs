//! State of the screen: what the broker said last, and which part of it is shown.

use jiff::Timestamp;
use outboard_pool::api::{DeviceView, PoolView, ServerView};
use ratatui::crossterm::event::KeyCode;

use super::super::series::Series;

/// The lists of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Devices,
    Leases,
    Queue,
}

impl List {
    pub(super) const ALL: [List; 3] = [List::Devices, List::Leases, List::Queue];
}

/// The state of the screen.
pub(super) struct PoolState {
    view: PoolView,
    /// When that was so.
    pub(super) seen: Timestamp,
    /// Why nothing newer is shown, if so.
    pub(super) missed: Option<String>,
    busy: Series,
    /// The list that keys move.
    pub(super) chosen: List,
    /// How many rows of each list are scrolled out above.
    pub(super) offsets: [usize; 3],
    pub(super) paused: bool,
}

impl Default for PoolState {
    fn default() -> PoolState {
        PoolState {
            view: PoolView {
                release: String::new(),
                policy: String::new(),
                servers: Vec::new(),
                leases: Vec::new(),
                queue: Vec::new(),
                owners: Vec::new(),
                next: None,
            },
            seen: Timestamp::now(),
            missed: None,
            busy: Series::default(),
            chosen: List::Devices,
            offsets: [0; 3],
            paused: false,
        }
    }
}

/// By which a device is remembered.
fn name(server: &ServerView, device: &DeviceView) -> String {
    format!("{} {}", server.name, device.uuid)
}

impl PoolState {
    /// Shows this from now on, unless it is paused.
    pub(super) fn take(&mut self, view: PoolView) {
        if self.paused {
            return;
        }
        let devices = view
            .servers
            .iter()
            .flat_map(|server| server.devices.iter().map(move |device| (server, device)));
        let loads: Vec<(String, f64)> = devices
            .map(|(server, device)| (name(server, device), f64::from(device.load_percent)))
            .collect();
        self.busy.take(loads.iter().map(|(name, load)| (name.as_str(), Some(*load))));
        (self.view, self.seen, self.missed) = (view, Timestamp::now(), None);
        self.keep_in_range();
    }

    /// The broker has not said anything.
    pub(super) fn miss(&mut self, because: String) {
        self.missed = Some(because);
    }

    pub(super) fn view(&self) -> &PoolView {
        &self.view
    }

    /// How busy a device was lately.
    pub(super) fn lately(&self, server: &ServerView, device: &DeviceView, cells: usize) -> String {
        self.busy.beside(100.0, &name(server, device), cells)
    }

    /// How many rows a list has.
    pub(super) fn rows(&self, list: List) -> usize {
        match list {
            List::Devices => self.view.servers.iter().map(|server| server.devices.len()).sum(),
            List::Leases => self.view.leases.len(),
            List::Queue => self.view.queue.len(),
        }
    }

    /// Handles a key; whether to go on.
    pub(super) fn key(&mut self, key: KeyCode) -> bool {
        let at = List::ALL.iter().position(|list| *list == self.chosen).unwrap_or(0);
        let offset = &mut self.offsets[at];
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p') | KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Tab => self.chosen = List::ALL[(at + 1) % List::ALL.len()],
            KeyCode::BackTab => self.chosen = List::ALL[(at + 2) % List::ALL.len()],
            KeyCode::Down => *offset += 1,
            KeyCode::Up => *offset = offset.saturating_sub(1),
            KeyCode::PageDown => *offset += 10,
            KeyCode::PageUp => *offset = offset.saturating_sub(10),
            KeyCode::Home => *offset = 0,
            _ => {}
        }
        self.keep_in_range();
        true
    }

    fn keep_in_range(&mut self) {
        for (at, list) in List::ALL.into_iter().enumerate() {
            self.offsets[at] = self.offsets[at].min(self.rows(list).saturating_sub(1));
        }
    }
}
