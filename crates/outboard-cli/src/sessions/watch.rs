//! `outboard sessions --watch`: the same again and again.

use std::io::IsTerminal;
use std::time::Duration;

use jiff::Timestamp;
use miette::{IntoDiagnostic, Result};

use super::{Args, HEAD, Rated, Rates, held, kept, rows};
use crate::admin;
use crate::output::print_to_reader;
use crate::sessions::text::columns;

/// The width of lines if the terminal's is not known.
const USUAL: usize = 80;
/// How long the first look takes.
const FIRST: Duration = Duration::from_millis(500);

/// A column: how many letters it may have, and from which width of a line on it is there. The
/// client's column takes the remaining width.
const COLUMNS: [(&str, usize, usize); 13] = [
    ("SESSION", 8, 0),
    ("OWNER", 10, 0),
    ("TOKEN", 8, 170),
    ("CLIENT", 12, 0),
    ("FROM", 21, 150),
    ("DEVICES", 7, 90),
    ("STATE", 12, 0),
    ("VIA", 7, 120),
    ("AGE", 6, 110),
    ("IDLE", 6, 100),
    ("MEMORY", 8, 0),
    ("CALLS/S", 7, 0),
    ("BYTES/S", 8, 0),
];

/// A number of seconds, as the command line takes it.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write a number of seconds from 0.1 to 3600".to_owned())
}

/// Prints until the output is closed, the process is interrupted, or the server is gone.
pub(super) fn watch(args: &Args, interval: Duration) -> Result<()> {
    let mut admin = args.admin.connect()?;
    let mut rates = Rates::default();
    let mut look = || admin.listing().map_err(|error| admin::failed(&error));
    rates.take(look()?);
    std::thread::sleep(FIRST.min(interval));
    loop {
        let rated = args.chosen(rates.take(look()?));
        let text = if args.json {
            serde_json::to_string(&rated).into_diagnostic()? + "\n"
        } else {
            let server = args.admin.server.address.to_string();
            let head = format!("{server}, {}", Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC"));
            screen(&head, &rated)
        };
        if !print_to_reader(text.as_bytes())? {
            return Ok(());
        }
        std::thread::sleep(interval);
    }
}

/// A look: on a terminal in the place of the one before, else below it.
fn screen(head: &str, rated: &Rated) -> String {
    let output = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&output)
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0);
    match size.filter(|_| output.is_terminal()) {
        // To the upper left, and nothing is left below.
        Some(size) => {
            let text = page(head, rated, usize::from(size.ws_col), usize::from(size.ws_row));
            format!("\x1b[H\x1b[2J{text}")
        }
        None => page(head, rated, USUAL, usize::MAX) + "\n",
    }
}

/// Lines of at most `width` letters, fewer than `height`: one more line is for the cursor.
fn page(head: &str, rated: &Rated, width: usize, height: usize) -> String {
    let table = if rated.sessions.is_empty() {
        "No sessions.\n".to_owned()
    } else {
        columns(&fitted(rated, width))
    };
    let all = format!("{head}\n{table}{}{}", held(rated), kept(rated));
    let lines: Vec<&str> = all.lines().collect();
    let most = height.saturating_sub(1).max(1);
    let mut text = String::new();
    // The last line of those that there is room for says how many there are more.
    let shown = if lines.len() > most { most - 1 } else { lines.len() };
    for line in &lines[..shown] {
        text.push_str(&cut(line, width));
        text.push('\n');
    }
    if shown < lines.len() {
        text.push_str(&cut(&format!("… and {} lines more", lines.len() - shown), width));
        text.push('\n');
    }
    text
}

/// The rows with the columns that there is room for.
fn fitted(rated: &Rated, width: usize) -> Vec<Vec<String>> {
    debug_assert!(COLUMNS.iter().map(|column| column.0).eq(HEAD));
    let there = COLUMNS.map(|(_, _, from)| width >= from);
    let taken: usize = COLUMNS
        .iter()
        .zip(there)
        .filter(|(_, there)| *there)
        .map(|((_, most, _), _)| most + 2)
        .sum();
    let left = (width + 2).saturating_sub(taken);
    let fit = |row: Vec<String>| {
        let cells = row.into_iter().zip(COLUMNS).zip(there).filter(|(_, there)| *there);
        let cell = |((cell, (name, most, _)), _): ((String, (&str, usize, usize)), bool)| {
            cut(&cell, if name == "CLIENT" { most + left } else { most })
        };
        cells.map(cell).collect()
    };
    rows(rated).into_iter().map(fit).collect()
}

/// A text with no more letters than that.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(most.saturating_sub(1)).collect();
    beginning + "…"
}

#[cfg(test)]
mod tests {
    use outboard_supervisor::admin::{KeptPlace, Session};

    use super::*;
    use crate::sessions::RatedSession;

    fn rated(sessions: usize) -> Rated {
        let session = |number: usize| Session {
            id: format!("{number:016x}"),
            owner: "a-very-long-name-of-an-owner".into(),
            client: format!("train{number} (4194303)"),
            peer: "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535".into(),
            state: "disconnected".into(),
            transport: "tcp+tls".into(),
            devices: (0..16).collect(),
            age_seconds: 1e7,
            idle_seconds: 1e7,
            kind: "session".into(),
            ..Session::default()
        };
        let rated = |number| RatedSession {
            session: session(number),
            calls_per_second: 9999e6,
            bytes_per_second: 1023.4 * f64::from(1 << 30),
            ..RatedSession::default()
        };
        let kept = KeptPlace { client: "x".repeat(100), seconds: 20.0, ..KeptPlace::default() };
        Rated { sessions: (0..sessions).map(rated).collect(), kept: vec![kept], ..Rated::default() }
    }

    #[test]
    fn no_line_is_wider_than_it_may_be() {
        for width in [1, 10, 40, 79, 80, 89, 90, 100, 110, 120, 150, 170, 300] {
            let text = page("head", &rated(3), width, usize::MAX);
            assert_eq!(text.lines().count(), 6, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
        let text = page("head", &rated(1), 80, usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "SESSION   OWNER       CLIENT           STATE         MEMORY  CALLS/S  BYTES/S"
        );
        assert!(
            lines[2].starts_with("00000000  a-very-lo…  train0 (419430…  disconnected  "),
            "{text}"
        );
        assert!(lines[2].ends_with("  9999M    1023 GiB"), "{text}");
        assert!(page("head", &rated(1), 300, usize::MAX).contains("train0 (4194303)"));
    }

    #[test]
    fn no_look_is_higher_than_it_may_be() {
        for height in 1..10 {
            let text = page("head", &rated(4), 80, height);
            assert!(text.lines().count() < height.max(2), "{height}:\n{text}");
        }
        assert!(page("head", &rated(4), 80, 5).ends_with("… and 4 lines more\n"));
        assert!(!page("head", &rated(4), 80, 8).contains("more lines"));
    }

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e9", "2s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
