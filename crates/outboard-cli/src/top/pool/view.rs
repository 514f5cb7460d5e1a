//! How it looks.

use std::collections::HashMap;

use outboard_pool::api::{DeviceView, LeaseView, PoolView, ServerView, TicketView};
use outboard_pool::words::{Condition, Granted, Health, LeaseNumber, Use};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};

use super::super::bar::bar;
use super::state::{List, PoolState};
use crate::sessions::text::{bytes, columns, duration, plain};

/// Width of recent values, in cells.
const LATELY: usize = 6;

/// A list as text.
struct Rows {
    heads: Vec<&'static str>,
    widths: Vec<Constraint>,
    rows: Vec<(Vec<String>, Style)>,
    none: &'static str,
}

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut PoolState) {
    let area = frame.area();
    let needs = List::ALL.map(|list| state.rows(list).max(1) + 1);
    let heights = divide(usize::from(area.height.saturating_sub(2)), needs);
    let length = |height: usize| Constraint::Length(u16::try_from(height).unwrap_or(u16::MAX));
    let parts = [
        Constraint::Length(1),
        length(heights[0]),
        length(heights[1]),
        length(heights[2]),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, devices, leases, queue, _, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(summary(state), head);
    for (at, (list, area)) in List::ALL.into_iter().zip([devices, leases, queue]).enumerate() {
        let shown = rows(state, list, area.width);
        let room = usize::from(area.height.saturating_sub(1));
        let offset = state.offsets[at].min(shown.rows.len().saturating_sub(room));
        state.offsets[at] = offset;
        draw_list(frame, shown, offset, list == state.chosen, area);
    }
    let keys = "q quit  Tab next list  ↑ ↓ scroll  p pause";
    frame.render_widget(Line::from(keys), foot);
}

/// Lines for lists that need so many: who needs less than its part leaves the rest to others.
fn divide(room: usize, needs: [usize; 3]) -> [usize; 3] {
    let mut given = [0; 3];
    for _ in 0..room {
        let wanting = (0..3).filter(|at| given[*at] < needs[*at]);
        // Of equals the first: devices come before leases and the queue.
        let Some(least) = wanting.min_by_key(|at| given[*at]) else { break };
        given[least] += 1;
    }
    given
}

fn draw_list(frame: &mut Frame<'_>, shown: Rows, offset: usize, is_chosen: bool, area: Rect) {
    let style = match is_chosen {
        true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
        false => Style::new().add_modifier(Modifier::REVERSED),
    };
    let head = Row::new(shown.heads).style(style);
    let room = usize::from(area.height.saturating_sub(1));
    if shown.rows.is_empty() {
        let [top, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        frame.render_widget(Table::new([] as [Row<'_>; 0], shown.widths).header(head), top);
        frame.render_widget(Paragraph::new(shown.none), rest);
        return;
    }
    let rows = shown.rows.into_iter().skip(offset).take(room);
    let rows = rows.map(|(cells, style)| Row::new(cells).style(style));
    frame.render_widget(Table::new(rows, shown.widths).header(head), area);
}

fn summary(state: &PoolState) -> Line<'static> {
    let view = state.view();
    let able: Vec<&DeviceView> = view
        .servers
        .iter()
        .filter(|server| server.condition != Condition::Silent)
        .flat_map(|server| &server.devices)
        .filter(|device| device.health == Health::Well)
        .collect();
    let taken: u32 = able.iter().map(|device| u32::from(100 - device.free_percent.min(100))).sum();
    let load: u32 = able.iter().map(|device| u32::from(device.load_percent)).sum();
    let count = u32::try_from(able.len()).unwrap_or(u32::MAX);
    let ready = view.servers.iter().filter(|server| server.condition == Condition::Ready).count();
    let mut line = Line::from(vec![
        Span::styled(
            format!("pool {}", plain(&view.release)),
            Style::new().add_modifier(Modifier::BOLD),
        ),
        Span::raw(format!(
            "  {:.1}/{count} devices taken  {}% busy  {ready}/{} servers ready",
            f64::from(taken) / 100.0,
            load / count.max(1),
            view.servers.len(),
        )),
    ]);
    let yellow = Style::new().fg(Color::Yellow);
    if state.paused {
        line.push_span(Span::styled("  paused", yellow));
    }
    if let Some(because) = &state.missed {
        line.push_span(Span::styled(format!("  {}", plain(because)), yellow));
    }
    line
}

fn rows(state: &PoolState, list: List, width: u16) -> Rows {
    match list {
        List::Devices => device_rows(state, width),
        List::Leases => lease_rows(state),
        List::Queue => queue_rows(state),
    }
}

/// How a server and its device are, in a word.
fn condition(server: &ServerView, device: &DeviceView) -> (&'static str, Style) {
    let (red, yellow) = (Style::new().fg(Color::Red), Style::new().fg(Color::Yellow));
    match (device.health, server.condition) {
        (Health::Ill, _) => ("ill", red),
        (_, Condition::Silent) => ("silent", red),
        (_, Condition::Draining) if server.because.is_some() => ("owes", yellow),
        (_, Condition::Draining) => ("draining", yellow),
        (_, Condition::Ready) => ("ready", Style::new()),
    }
}

fn device_rows(state: &PoolState, width: u16) -> Rows {
    let view = state.view();
    let leases: HashMap<LeaseNumber, &LeaseView> =
        view.leases.iter().map(|lease| (lease.number, lease)).collect();
    let owners = |device: &DeviceView| {
        let owner = |number: &LeaseNumber| leases.get(number).map(|lease| lease.owner.as_str());
        let mut owners: Vec<&str> = device.leases.iter().filter_map(owner).collect();
        owners.dedup();
        owners.join(" ")
    };
    let wide = width >= 110;
    let cells = if wide { 10 } else { 5 };
    let row = |server: &ServerView, at: usize, device: &DeviceView| {
        let taken = 100 - device.free_percent.min(100);
        let (word, style) = condition(server, device);
        let text = vec![
            format!("{}/{at}", server.name),
            plain(&device.model),
            format!("{} {taken:>3}%", bar(Some(f64::from(taken) / 100.0), cells)),
            format!("{}/{}", bytes(device.free_bytes as f64), bytes(device.memory_bytes as f64)),
            format!("{:>3}% {}", device.load_percent, state.lately(server, device, LATELY)),
            word.to_owned(),
            plain(&owners(device)),
        ];
        (text, style)
    };
    let all = view.servers.iter().flat_map(|server| {
        server.devices.iter().enumerate().map(move |(at, device)| (server, at, device))
    });
    let bar = u16::try_from(cells + 7).unwrap_or(12);
    Rows {
        heads: vec!["DEVICE", "MODEL", "TAKEN", "FREE", "BUSY LATELY", "STATE", "WHO"],
        widths: vec![
            Constraint::Length(if wide { 20 } else { 10 }),
            Constraint::Fill(2),
            Constraint::Length(bar),
            Constraint::Length(17),
            Constraint::Length(11),
            Constraint::Length(8),
            Constraint::Fill(1),
        ],
        rows: all.map(|(server, at, device)| row(server, at, device)).collect(),
        none: "the pool has no devices",
    }
}

/// A device of a lease, by the number that it has on its server.
fn device_of(view: &PoolView, granted: &Granted) -> String {
    let server = view.servers.iter().find(|server| server.name == granted.server);
    let at = server
        .and_then(|server| server.devices.iter().position(|device| device.uuid == granted.device));
    let part = match granted.usage {
        Use::Exclusive => String::new(),
        Use::Shared(share) => format!("({}%)", share.percent()),
    };
    match at {
        Some(at) => format!("{}/{at}{part}", granted.server),
        None => format!("{}/{}{part}", granted.server, granted.device),
    }
}

fn lease_rows(state: &PoolState) -> Rows {
    let (view, now) = (state.view(), state.seen);
    let row = |lease: &LeaseView| {
        let age = now.duration_since(lease.since).as_secs_f64();
        let left = lease.expires.duration_since(now).as_secs_f64();
        let devices: Vec<String> =
            lease.devices.iter().map(|granted| device_of(view, granted)).collect();
        let text = vec![
            lease.number.to_string(),
            lease.owner.to_string(),
            duration(age),
            lease.sessions.to_string(),
            bytes(lease.used_bytes as f64),
            lease.over.as_ref().map_or_else(|| duration(left), |_| "over".to_owned()),
            plain(&devices.join(" ")),
        ];
        let style = match lease.over {
            Some(_) => Style::new().fg(Color::Yellow),
            None => Style::new(),
        };
        (text, style)
    };
    Rows {
        heads: vec!["LEASE", "OWNER", "FOR", "SESS", "USED", "ENDS", "DEVICES"],
        widths: vec![
            Constraint::Length(7),
            Constraint::Length(12),
            Constraint::Length(6),
            Constraint::Length(4),
            Constraint::Length(8),
            Constraint::Length(6),
            Constraint::Fill(1),
        ],
        rows: view.leases.iter().map(row).collect(),
        none: "nobody has a lease",
    }
}

fn queue_rows(state: &PoolState) -> Rows {
    let row = |ticket: &TicketView| {
        let part = match ticket.usage {
            Use::Exclusive => "whole".to_owned(),
            Use::Shared(share) => format!("{}%", share.percent()),
        };
        let text = vec![
            ticket.place.to_string(),
            ticket.owner.to_string(),
            duration(state.seen.duration_since(ticket.since).as_secs_f64()),
            format!("{} {part} {}", ticket.devices, bytes(ticket.memory_bytes as f64)),
            plain(&ticket.because),
        ];
        (text, Style::new())
    };
    Rows {
        heads: vec!["PLACE", "OWNER", "FOR", "WANTS", "BECAUSE"],
        widths: vec![
            Constraint::Length(7),
            Constraint::Length(12),
            Constraint::Length(6),
            Constraint::Length(19),
            Constraint::Fill(1),
        ],
        rows: state.view().queue.iter().map(row).collect(),
        none: "nobody waits",
    }
}

/// The same as text, for scripts and files.
pub(super) fn text(state: &PoolState) -> String {
    let mut text = summary(state).to_string();
    text.push('\n');
    for list in List::ALL {
        let shown = rows(state, list, u16::MAX);
        text.push('\n');
        if shown.rows.is_empty() {
            text.push_str(shown.none);
            text.push('\n');
            continue;
        }
        let mut all: Vec<Vec<String>> =
            vec![shown.heads.iter().map(|head| (*head).to_owned()).collect()];
        all.extend(shown.rows.into_iter().map(|(cells, _)| cells));
        text.push_str(&columns(&all));
    }
    text
}

#[cfg(test)]
mod tests;
