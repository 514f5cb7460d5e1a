//! How it looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::bar::bar;
use super::state::{SORTS, TopState};
use crate::gauges::Gauge;
use crate::sessions::RatedSession;
use crate::sessions::text::{self, bytes, columns, devices, duration, plain, rate, short};

/// A column of the table of sessions.
struct Column {
    head: &'static str,
    width: u16,
    /// The column that takes the remaining width.
    grows: bool,
    /// Screens that are narrower go without it.
    from: u16,
    cell: fn(&RatedSession, &TopState) -> String,
}

/// How calls a second went lately: nothing that a single look could say.
const RECENT: Column = Column {
    head: "LATELY",
    width: 6,
    grows: false,
    from: 80,
    cell: |rated, state| state.recent.of_session(&rated.session.id, 6),
};

const COLUMNS: &[Column] = &[
    Column {
        head: "SESSION",
        width: 8,
        grows: false,
        from: 0,
        cell: |rated, _| short(&rated.session.id).to_owned(),
    },
    Column {
        head: "OWNER",
        width: 8,
        grows: false,
        from: 0,
        cell: |rated, _| rated.session.owner.clone(),
    },
    Column {
        head: "CLIENT",
        width: 10,
        grows: true,
        from: 0,
        cell: |rated, _| rated.session.client.clone(),
    },
    Column {
        head: "FROM",
        width: 21,
        grows: false,
        from: 130,
        cell: |rated, _| rated.session.peer.clone(),
    },
    Column {
        head: "DEV",
        width: 4,
        grows: false,
        from: 90,
        cell: |rated, _| devices(&rated.session),
    },
    Column {
        head: "STATE",
        width: 9,
        grows: false,
        from: 70,
        cell: |rated, _| rated.session.state.clone(),
    },
    Column {
        head: "VIA",
        width: 4,
        grows: false,
        from: 110,
        cell: |rated, _| rated.session.transport.clone(),
    },
    Column {
        head: "AGE",
        width: 7,
        grows: false,
        from: 120,
        cell: |rated, _| duration(rated.session.age_seconds),
    },
    Column {
        head: "IDLE",
        width: 6,
        grows: false,
        from: 100,
        cell: |rated, _| duration(rated.session.idle_seconds),
    },
    Column {
        head: "MEMORY",
        width: 8,
        grows: false,
        from: 0,
        cell: |rated, _| bytes(rated.session.held() as f64),
    },
    Column {
        head: "CALLS/S",
        width: 7,
        grows: false,
        from: 0,
        cell: |rated, _| rate(rated.calls_per_second),
    },
    Column {
        head: "IN/S",
        width: 8,
        grows: false,
        from: 60,
        cell: |rated, _| bytes(rated.bytes_to_device_per_second),
    },
    Column {
        head: "OUT/S",
        width: 8,
        grows: false,
        from: 60,
        cell: |rated, _| bytes(rated.bytes_from_device_per_second),
    },
    Column {
        head: "WAIT",
        width: 5,
        grows: false,
        from: 110,
        cell: |rated, _| format!("{:.0}%", rated.waiting * 100.0),
    },
];

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut TopState) {
    let area = frame.area();
    let shown = (state.look().devices.len() as u16).min(area.height.saturating_sub(6).max(3) / 3);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(shown + 1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [head, devices, sessions, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(summary(state), head);
    draw_devices(frame, state, devices, shown as usize);
    draw_sessions(frame, state, sessions);
    frame.render_widget(keys(state), foot);
}

fn summary(state: &TopState) -> Line<'static> {
    let server = &state.look().server;
    let sum = |of: fn(&RatedSession) -> f64| server.sessions.iter().map(of).sum::<f64>();
    let sessions = server.sessions.iter().filter(|rated| rated.session.kind == "session").count();
    let mut line = Line::from(vec![
        Span::styled(
            format!("outboard {}", server.software),
            Style::new().add_modifier(Modifier::BOLD),
        ),
        Span::raw(format!(
            "  up {}  {sessions}/{} sessions  {}/{} warm  {} calls/s  {}/s",
            duration(server.age_seconds),
            server.most_sessions,
            server.warm_workers,
            server.warm_wanted,
            rate(sum(|rated| rated.calls_per_second)),
            bytes(sum(|rated| rated.bytes_per_second)),
        )),
    ]);
    if state.paused {
        line.push_span(Span::styled("  paused", Style::new().fg(Color::Yellow)));
    }
    line
}

fn sessions_on(state: &TopState, device: u32) -> usize {
    let uses =
        |rated: &&RatedSession| rated.session.memory.iter().any(|memory| memory.device == device);
    state.look().server.sessions.iter().filter(uses).count()
}

/// The holder of a device, if it is exclusive.
fn holder(state: &TopState, device: u32) -> Option<String> {
    let held = state.look().server.held.iter().find(|held| held.device == device)?;
    Some(text::holder(held, "for"))
}

/// Width of recent values, in cells.
const LATELY: usize = 6;

fn draw_devices(frame: &mut Frame<'_>, state: &TopState, area: Rect, shown: usize) {
    let wide = area.width >= 100;
    // A holder takes a line's rest.
    let held = area.width >= 130;
    let cells = if wide { 12 } else { 6 };
    let line = |gauge: &Gauge| {
        let memory = format!(
            "{}/{}",
            gauge.memory_used_bytes.map_or("?".to_owned(), |used| bytes(used as f64)),
            bytes(gauge.memory_bytes as f64)
        );
        let mut row = vec![
            Cell::from(format!("/{}", gauge.index)),
            Cell::from(gauge.name.clone()),
            Cell::from(bar(gauge.utilisation.map(|percent| f64::from(percent) / 100.0), cells))
                .fg(Color::Green),
            Cell::from(gauge.utilisation.map_or("–".to_owned(), |percent| format!("{percent}%"))),
            Cell::from(state.recent.utilisation(&gauge.uuid, LATELY)).fg(Color::Green),
            Cell::from(bar(gauge.used_part(), cells)).fg(Color::Cyan),
            Cell::from(memory),
            Cell::from(state.recent.memory(&gauge.uuid, LATELY)).fg(Color::Cyan),
            Cell::from(sessions_on(state, gauge.index).to_string()),
        ];
        if wide {
            row.push(Cell::from(
                gauge.temperature.map_or("–".to_owned(), |degrees| format!("{degrees} °C")),
            ));
            row.push(Cell::from(
                gauge.watts.map_or("–".to_owned(), |watts| format!("{watts:.0} W")),
            ));
        }
        if held {
            row.push(Cell::from(holder(state, gauge.index).unwrap_or_default()));
        }
        Row::new(row)
    };
    let lately = Constraint::Length(LATELY as u16);
    let bar = Constraint::Length(cells as u16 + 2);
    let mut widths = vec![
        Constraint::Length(3),
        Constraint::Min(8),
        bar,
        Constraint::Length(4),
        lately,
        bar,
        Constraint::Length(17),
        lately,
        Constraint::Length(4),
    ];
    let mut head = vec!["", "DEVICE", "BUSY", "", "LATELY", "MEMORY", "", "LATELY", "SESS"];
    if wide {
        widths.extend([Constraint::Length(6), Constraint::Length(6)]);
        head.extend(["TEMP", "POWER"]);
    }
    if held {
        widths.push(Constraint::Length(24));
        head.push("EXCLUSIVE");
    }
    let rows = state.look().devices.iter().take(shown).map(line);
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

fn draw_sessions(frame: &mut Frame<'_>, state: &mut TopState, area: Rect) {
    let columns: Vec<&Column> =
        COLUMNS.iter().chain([&RECENT]).filter(|column| area.width >= column.from).collect();
    let widths = columns.iter().map(|column| match column.grows {
        true => Constraint::Min(column.width),
        false => Constraint::Length(column.width),
    });
    let shown: &TopState = state;
    let sessions = shown.sessions();
    let room = usize::from(area.height.saturating_sub(1));
    let offset = state.offset.min(sessions.len().saturating_sub(room));
    let row = |rated: &&RatedSession| {
        let style = match rated.session.state.as_str() {
            "serving" => Style::new(),
            "ending" => Style::new().fg(Color::Red),
            _ => Style::new().fg(Color::Yellow),
        };
        Row::new(
            columns.iter().map(|column| plain(&(column.cell)(rated, shown))).collect::<Vec<_>>(),
        )
        .style(style)
    };
    let rows: Vec<Row<'_>> = sessions.iter().skip(offset).take(room).map(row).collect();
    let head = columns.iter().map(|column| column.head);
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::REVERSED));
    if rows.is_empty() {
        let [top, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        frame.render_widget(Table::new([] as [Row<'_>; 0], widths).header(head), top);
        frame.render_widget(Paragraph::new("no sessions"), rest);
        return;
    }
    frame.render_widget(Table::new(rows, widths).header(head), area);
    state.offset = offset;
}

fn keys(state: &TopState) -> Line<'static> {
    let mut spans = vec![Span::raw("q quit  sort: ")];
    for (sort, name, key) in SORTS {
        let rest = name.strip_prefix(key).unwrap_or(name);
        let style = if sort == state.sort {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(format!("{key}{rest}"), style));
        spans.push(Span::raw(" "));
    }
    spans.push(Span::raw(" r reverse  p pause  h all"));
    Line::from(spans)
}

/// The same as text, for scripts and files.
pub(super) fn text(state: &TopState) -> String {
    let mut rows = vec![
        ["", "DEVICE", "BUSY", "USED", "MEMORY", "SESSIONS", "EXCLUSIVE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for gauge in &state.look().devices {
        rows.push(vec![
            format!("/{}", gauge.index),
            gauge.name.clone(),
            gauge.utilisation.map_or("–".to_owned(), |percent| format!("{percent}%")),
            gauge.memory_used_bytes.map_or("–".to_owned(), |used| bytes(used as f64)),
            bytes(gauge.memory_bytes as f64),
            sessions_on(state, gauge.index).to_string(),
            holder(state, gauge.index).unwrap_or_else(|| "–".to_owned()),
        ]);
    }
    let mut text = columns(&rows);
    let mut rows = vec![COLUMNS.iter().map(|column| column.head.to_owned()).collect::<Vec<_>>()];
    rows.extend(
        state
            .sessions()
            .iter()
            .map(|rated| COLUMNS.iter().map(|column| (column.cell)(rated, state)).collect()),
    );
    text.push('\n');
    text.push_str(&columns(&rows));
    text
}

#[cfg(test)]
mod tests {
    use outboard_supervisor::admin::{Held, Memory, Session};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::look::Look;
    use super::super::state::Sort;
    use super::*;
    use crate::sessions::Rated;

    fn session(id: &str, owner: &str, calls: f64, held: u64) -> RatedSession {
        let session = Session {
            id: format!("{id}00000000"),
            owner: owner.into(),
            client: "python3 (4711)".into(),
            kind: "session".into(),
            state: "serving".into(),
            transport: "tcp".into(),
            age_seconds: 100.0,
            memory: vec![Memory { device: 0, context: true, bytes: held, peak: held }],
            ..Session::default()
        };
        RatedSession {
            session,
            calls_per_second: calls,
            bytes_to_device_per_second: 2e6,
            ..RatedSession::default()
        }
    }

    fn state() -> TopState {
        let mut state = TopState::new(Sort::Calls);
        let sessions = vec![
            session("aaaaaaaa", "alice", 10.0, 5 << 30),
            session("bbbbbbbb", "bob", 12_345.0, 1 << 20),
        ];
        let held = vec![Held { device: 0, owner: "alice".into(), seconds: 61.0 }];
        let server = Rated {
            software: "0.1.0".into(),
            most_sessions: 8,
            sessions,
            held,
            ..Rated::default()
        };
        let gauge = Gauge {
            name: "NVIDIA H200".into(),
            memory_bytes: 141 << 30,
            memory_used_bytes: Some(70 << 30),
            utilisation: Some(50),
            ..Gauge::default()
        };
        state.take(Look { server, devices: vec![gauge] });
        state
    }

    fn screen(state: &mut TopState, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| {
            (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }

    #[test]
    fn it_fits_the_usual_terminal() {
        let lines = screen(&mut state(), 80, 24);
        assert_eq!(lines[0], "outboard 0.1.0  up 0s  2/8 sessions  0/0 warm  12k calls/s  0 B/s");
        assert!(
            lines[2].starts_with("/0  NVIDIA H200") && lines[2].contains("[|||   ] 50%"),
            "{}",
            lines[2]
        );
        assert!(lines[2].contains("70.0 GiB/141 GiB") && lines[2].ends_with('2'), "{}", lines[2]);
        let words: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(
            words,
            ["SESSION", "OWNER", "CLIENT", "STATE", "MEMORY", "CALLS/S", "IN/S", "OUT/S", "LATELY"]
        );
        let words: Vec<&str> = lines[4].split_whitespace().collect();
        assert_eq!(words[..2], ["bbbbbbbb", "bob"], "who calls most comes first");
        assert!(
            lines[4].contains("serving")
                && lines[4].contains("12k")
                && lines[4].contains("1.9 MiB"),
            "{}",
            lines[4]
        );
        assert!(lines[5].starts_with("aaaaaaaa alice"), "{}", lines[5]);
        assert!(lines[23].starts_with("q quit  sort: calls bytes"), "{}", lines[23]);
    }

    #[test]
    fn what_was_lately_stands_beside_what_is() {
        let mut state = state();
        for (percent, calls, used) in [(0, 0.0, 70), (100, 12_345.0, 120)] {
            let mut look = state.look().clone();
            look.devices[0].utilisation = Some(percent);
            look.devices[0].memory_used_bytes = Some(used << 30);
            look.server.sessions.iter_mut().for_each(|rated| rated.calls_per_second = calls);
            state.take(look);
        }
        let lines = screen(&mut state, 80, 24);
        assert!(
            lines[2].contains("] 100%    ▅▁█ [||||| ]") && lines[2].contains(" ▄▄▇ "),
            "{}",
            lines[2]
        );
        assert!(
            lines[4].starts_with("aaaaaaaa alice") && lines[4].ends_with("   ▁▁█"),
            "{}",
            lines[4]
        );
        assert!(
            lines[5].starts_with("bbbbbbbb bob") && lines[5].ends_with("   █▁█"),
            "{}",
            lines[5]
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
        assert!(!text(&state).contains("LATELY"));
        state.take(Look::default());
        assert!(state.recent.is_empty(), "what is gone is forgotten");
    }

    #[test]
    fn keys_sort_hide_pause_and_end() {
        let mut state = state();
        assert!(state.key(KeyCode::Char('m')));
        assert!(
            screen(&mut state, 80, 24)[4].starts_with("aaaaaaaa"),
            "who holds most comes first"
        );
        state.key(KeyCode::Char('r'));
        assert!(screen(&mut state, 80, 24)[4].starts_with("bbbbbbbb"));
        state.key(KeyCode::Char('p'));
        state.take(Look::default());
        assert_eq!(state.sessions().len(), 2, "nothing changes meanwhile");
        state.key(KeyCode::Char('p'));
        state.take(Look::default());
        assert!(screen(&mut state, 80, 24).iter().any(|line| line == "no sessions"));
        for key in [
            KeyCode::Down,
            KeyCode::PageDown,
            KeyCode::Up,
            KeyCode::Home,
            KeyCode::Char('x'),
            KeyCode::Enter,
        ] {
            assert!(state.key(key));
        }
        assert!(!state.key(KeyCode::Char('q')) && !state.key(KeyCode::Esc));
    }

    #[test]
    fn any_size_of_terminal_will_do() {
        for (width, height) in [(1, 1), (10, 3), (40, 6), (60, 10), (100, 30), (200, 60)] {
            screen(&mut state(), width, height);
        }
        let lines = screen(&mut state(), 200, 30);
        assert!(
            lines[3].contains("FROM") && lines[3].contains("WAIT") && lines[1].contains("POWER"),
            "{lines:?}"
        );
        assert!(lines[2].ends_with("alice for 1m01s"), "{}", lines[2]);
    }

    #[test]
    fn the_same_is_there_as_text() {
        let text = text(&state());
        let words = |line: usize| {
            text.lines().nth(line).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            words(1).as_deref(),
            Some("/0 NVIDIA H200 50% 70.0 GiB 141 GiB 2 alice for 1m01s")
        );
        assert!(words(4).is_some_and(|line| line.starts_with("bbbbbbbb bob python3")), "{text}");
    }
}
