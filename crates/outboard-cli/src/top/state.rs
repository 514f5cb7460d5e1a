//! State of the screen: which sessions it shows, and in which order.

use std::cmp::Ordering;
use std::str::FromStr;

use ratatui::crossterm::event::KeyCode;

use super::look::Look;
use super::recent::Recent;
use crate::sessions::RatedSession;

/// By what sessions are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Calls,
    Bytes,
    Memory,
    Waiting,
    Age,
    Owner,
}

/// All orders, with the name and the key of each.
pub(super) const SORTS: [(Sort, &str, char); 6] = [
    (Sort::Calls, "calls", 'c'),
    (Sort::Bytes, "bytes", 'b'),
    (Sort::Memory, "memory", 'm'),
    (Sort::Waiting, "waiting", 'w'),
    (Sort::Age, "age", 'a'),
    (Sort::Owner, "owner", 'o'),
];

impl FromStr for Sort {
    type Err = String;

    fn from_str(text: &str) -> Result<Sort, String> {
        let found = SORTS.iter().find(|(_, name, _)| *name == text);
        found
            .map(|(sort, _, _)| *sort)
            .ok_or_else(|| "one of calls, bytes, memory, waiting, age, owner".to_owned())
    }
}

/// The state of the screen.
pub(super) struct TopState {
    look: Look,
    pub(super) recent: Recent,
    pub(super) sort: Sort,
    reversed: bool,
    /// Whether connections that only ask are shown, too.
    pub(super) all: bool,
    pub(super) paused: bool,
    /// How many sessions are scrolled out above.
    pub(super) offset: usize,
}

impl TopState {
    pub(super) fn new(sort: Sort) -> TopState {
        TopState {
            look: Look::default(),
            recent: Recent::default(),
            sort,
            reversed: false,
            all: false,
            paused: false,
            offset: 0,
        }
    }

    /// Shows this from now on, unless it is paused.
    pub(super) fn take(&mut self, look: Look) {
        if !self.paused {
            self.recent.take(&look);
            self.look = look;
            self.arrange();
        }
    }

    pub(super) fn look(&self) -> &Look {
        &self.look
    }

    /// The sessions that are shown, in order.
    pub(super) fn sessions(&self) -> Vec<&RatedSession> {
        let sessions = self.look.server.sessions.iter();
        sessions.filter(|rated| self.all || rated.session.kind == "session").collect()
    }

    /// Handles a key; whether to go on.
    pub(super) fn key(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('h') => self.all = !self.all,
            KeyCode::Char('p') | KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('s') => {
                let at = SORTS.iter().position(|(sort, _, _)| *sort == self.sort).unwrap_or(0);
                self.sort = SORTS[(at + 1) % SORTS.len()].0;
            }
            KeyCode::Char(letter) => {
                if let Some((sort, _, _)) = SORTS.iter().find(|(_, _, key)| *key == letter) {
                    self.sort = *sort;
                }
            }
            KeyCode::Down => self.offset += 1,
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            KeyCode::PageDown => self.offset += 10,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(10),
            KeyCode::Home => self.offset = 0,
            _ => {}
        }
        self.offset = self.offset.min(self.sessions().len().saturating_sub(1));
        self.arrange();
        true
    }

    fn arrange(&mut self) {
        let (sort, reversed) = (self.sort, self.reversed);
        self.look.server.sessions.sort_by(|one, other| {
            let order =
                compare(sort, one, other).then_with(|| one.session.id.cmp(&other.session.id));
            if reversed { order.reverse() } else { order }
        });
    }
}

/// The most first, names by the alphabet.
fn compare(sort: Sort, one: &RatedSession, other: &RatedSession) -> Ordering {
    match sort {
        Sort::Calls => other.calls_per_second.total_cmp(&one.calls_per_second),
        Sort::Bytes => other.bytes_per_second.total_cmp(&one.bytes_per_second),
        Sort::Memory => other.session.held().cmp(&one.session.held()),
        Sort::Waiting => other.waiting.total_cmp(&one.waiting),
        Sort::Age => other.session.age_seconds.total_cmp(&one.session.age_seconds),
        Sort::Owner => one.session.owner.cmp(&other.session.owner),
    }
}
