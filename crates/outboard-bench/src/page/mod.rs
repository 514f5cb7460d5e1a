//! The page for people, its plots, and a short table for the terminal.

mod plots;
mod tables;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::BenchError;
use crate::results::{Group, Results};
use crate::targets::{self, Row};

/// What people keep beside the figures.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    notes: Vec<Note>,
    rows: Vec<Row>,
}

/// Why a target is missed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Note {
    /// The measure, or the start of the names of some.
    measure: String,
    /// The ways that it is about; all if there are none.
    #[serde(default)]
    ways: Vec<String>,
    why: String,
    closes: String,
}

#[derive(Deserialize)]
struct NotesFile {
    #[serde(default)]
    note: Vec<Note>,
}

impl Texts {
    /// Reads the notes, if the file is there, and the targets.
    pub fn read(notes: &Path) -> Result<Texts, BenchError> {
        let notes = match fs::read_to_string(notes) {
            Ok(text) => {
                let wrong = |error: toml::de::Error| BenchError::File {
                    file: notes.display().to_string(),
                    reason: error.to_string(),
                };
                toml::from_str::<NotesFile>(&text).map_err(wrong)?.note
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(BenchError::system(format!("cannot read {}", notes.display()))(error));
            }
        };
        Ok(Texts { notes, rows: targets::rows()? })
    }

    /// What people say about a measure's way: the most exact name counts.
    fn note(&self, measure: &str, way: &str) -> Option<&Note> {
        let about = |note: &&Note| {
            measure.starts_with(&note.measure)
                && (note.ways.is_empty() || note.ways.iter().any(|name| name == way))
        };
        self.notes.iter().filter(about).max_by_key(|note| note.measure.len())
    }
}

/// Writes the page, and the plots into the folder beside it that has its name.
pub fn write(results: &Results, texts: &Texts, file: &Path) -> Result<(), BenchError> {
    let folder = file.with_extension("");
    fs::create_dir_all(&folder)
        .map_err(BenchError::system(format!("cannot create {}", folder.display())))?;
    let name =
        folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut plots = Vec::new();
    for plot in plots::draw(results)? {
        let path = folder.join(&plot.name);
        fs::write(&path, &plot.svg)
            .map_err(BenchError::system(format!("cannot write {}", path.display())))?;
        plots.push((format!("{name}/{}", plot.name), plot.title));
    }
    let text = page(results, texts, &plots);
    fs::write(file, text).map_err(BenchError::system(format!("cannot write {}", file.display())))
}

/// All medians in a table, with what the targets say of them.
pub fn for_terminal(results: &Results, texts: &Texts) -> String {
    let mut text = tables::short(results, &texts.rows);
    for sentence in &results.skipped {
        let _ = writeln!(text, "{sentence}");
    }
    text
}

/// The groups in their order, with their headings.
const GROUPS: [(Group, &str); 9] = [
    (Group::Calls, "Calls"),
    (Group::Memory, "Memory"),
    (Group::Copies, "Copies"),
    (Group::Queued, "Copies queued at once"),
    (Group::Clients, "Several clients at once"),
    (Group::Local, "Local questions"),
    (Group::Startup, "Start"),
    (Group::Waiting, "Waiting and doing nothing"),
    (Group::Applications, "Applications"),
];

/// The whole page.
fn page(results: &Results, texts: &Texts, plots: &[(String, &'static str)]) -> String {
    let mut page = String::from(
        "<!-- Written by `outboard bench`. What people say about missed targets is in benches/notes.toml. -->\n\n# Performance\n\n",
    );
    let revision = results
        .revision
        .as_ref()
        .map(|revision| format!(", revision {revision}"))
        .unwrap_or_default();
    let device = results.machine.get("device").map_or("an unknown device", String::as_str);
    let _ = writeln!(
        page,
        "Outboard {}{revision}, {}, {device}. Client and server ran on one machine, native and remote in one run and in \
         turns, {} rounds.\nA figure is the median of its rounds, of which each is the median of a turn's samples; in \
         parentheses stand the lowest and the highest round.\nRatios are to native within the same round: for times, less \
         is better, for GB/s, more. [How to run it](using.md#how-fast-it-is).\n",
        results.outboard, results.date, results.rounds,
    );
    let _ = writeln!(page, "```sh\n{}\n```\n", results.command);
    if results.quick {
        page +=
            "This was a quick run: its figures show that measuring works, and nothing else.\n\n";
    }
    for sentence in &results.skipped {
        let _ = writeln!(page, "- {sentence}");
    }
    if !results.skipped.is_empty() {
        page.push('\n');
    }
    page += "## Targets\n\n";
    page += &tables::targets(results, &texts.rows);
    page += &tables::missed(results, texts);
    for (file, title) in plots {
        let _ = writeln!(page, "![{title}]({file})\n");
    }
    page += "## Everything measured\n\nCPU is what client and server, with its worker, use for one operation.\n\n";
    for (group, heading) in GROUPS {
        page += &tables::group(results, group, heading);
    }
    page += &tables::plain_tcp(results);
    page += "## Machine\n\n| | |\n|---|---|\n";
    for (name, value) in &results.machine {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    page
}

#[cfg(test)]
mod tests;
