//! Numbers and tables for people.

use outboard_supervisor::admin::{Held, Session};

/// What a client has shown: its token's public name, or the number of its lease.
pub(crate) fn shown(session: &Session) -> String {
    match (&session.token, session.lease) {
        (_, Some(lease)) => format!("lease {lease}"),
        (Some(token), None) => token.clone(),
        (None, None) => "–".to_owned(),
    }
}

/// Text of strangers as a terminal can take it: servers of older releases may pass on what clients
/// call themselves.
pub(crate) use outboard_wire::plain;

/// The beginning of a session's number that people are shown.
pub(crate) fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// Bytes with three digits or so.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes.max(0.0), 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A count by the second.
pub(crate) fn rate(rate: f64) -> String {
    match rate {
        rate if rate >= 1e7 => format!("{:.0}M", rate / 1e6),
        rate if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0}k", rate / 1e3),
        rate if rate >= 1e3 => format!("{:.1}k", rate / 1e3),
        rate if rate >= 10.0 || rate == 0.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

/// A time in its two largest units.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// The devices that a session uses, or has asked for.
pub(crate) fn devices(session: &Session) -> String {
    let used: Vec<u32> = session.memory.iter().map(|memory| memory.device).collect();
    let shown = if used.is_empty() { &session.devices } else { &used };
    if shown.is_empty() {
        return if session.devices.is_empty() { "all" } else { "–" }.to_owned();
    }
    shown.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The holder of an exclusive device, and for how long.
pub(crate) fn holder(held: &Held, between: &str) -> String {
    format!("{} {between} {}", plain(&held.owner), duration(held.seconds))
}

/// Rows with columns as wide as they need to be.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        for (index, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(index) {
                Some(known) => *known = (*known).max(width),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_controls_the_terminal() {
        assert_eq!(columns(&[vec!["a\u{1b}[2J".to_owned(), "b\n".to_owned()]]), "a?[2J  b?\n");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 1023.0, 1024.0, 150.0 * 1048576.0, 1e18].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "150 MiB", "888 PiB"]
        );
        assert_eq!(
            [0.0, 0.5, 42.4, 1234.0, 56_789.0, 1.2e6, 4e7].map(rate),
            ["0", "0.5", "42", "1.2k", "57k", "1.2M", "40M"]
        );
        assert_eq!([5.9, 61.0, 3700.0, 90_000.0].map(duration), ["5s", "1m01s", "1h01m", "1d01h"]);
    }
}
