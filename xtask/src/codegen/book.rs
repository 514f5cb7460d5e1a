//! The book's table of contents and the lists of error codes: pages are found by their names,
//! titles are those of the pages.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Parts of the book and their pages, in order. Pages that are in none come under the last part.
const PARTS: &[(&str, &[&str])] = &[
    (
        "Using it",
        &[
            "install",
            "clients",
            "using",
            "python",
            "collectives",
            "files",
            "ci",
            "configuration",
            "pool",
            "containers",
            "software-device",
        ],
    ),
    ("Running it", &["service", "operations", "security", "sharing", "observability", "uninstall"]),
    ("When something is wrong", &["troubleshooting", "errors", "limits"]),
    ("Figures", &["performance", "latency", "compatibility", "on-a-gpu"]),
    (
        "Reference",
        &[
            "glossary",
            "coverage",
            "coverage-nvml",
            "coverage-nccl",
            "coverage-cufile",
            "protocol",
            "decisions",
        ],
    ),
];
/// The page before all parts.
const FIRST: &str = "five-minutes";
/// What the first two digits of a code say.
const SECTIONS: &[(&str, &str)] = &[
    ("01", "Reaching a server"),
    ("02", "What a server answers"),
    ("03", "Starting a server and its driver"),
    ("04", "Who one is"),
    ("05", "Limits and sharing"),
    ("06", "Sessions"),
    ("07", "The command and its installation"),
    ("08", "Operation"),
    ("09", "Observation"),
    ("10", "Pools"),
];

/// The title of a page.
fn title(page: &Path) -> Result<String> {
    let text =
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let first = text.lines().find_map(|line| line.strip_prefix("# "));
    Ok(first
        .with_context(|| format!("{} has no title", page.display()))?
        .replace('[', "(")
        .replace(']', ")"))
}

/// The names of the pages in a folder, without their ending, in order.
fn pages(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(
            name.strip_suffix(".md")
                .filter(|name| !matches!(*name, "README" | "SUMMARY"))
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

/// `docs/SUMMARY.md`.
pub(super) fn summary(root: &Path) -> Result<String> {
    let docs = root.join("docs");
    let mut left = pages(&docs)?;
    left.retain(|name| name != FIRST);
    let first = docs.join(format!("{FIRST}.md"));
    let mut text = format!("# Summary\n\n[{}]({FIRST}.md)\n", title(&first)?);
    for (index, (part, names)) in PARTS.iter().enumerate() {
        let _ = write!(text, "\n# {part}\n\n");
        for name in *names {
            if let Some(place) = left.iter().position(|other| other == name) {
                left.remove(place);
                let _ =
                    writeln!(text, "- [{}]({name}.md)", title(&docs.join(format!("{name}.md")))?);
            } else if docs.join(name).is_dir() {
                let folder = docs.join(name);
                // The list of codes is made by this command, too.
                let heading = if *name == "errors" {
                    "Error codes".to_owned()
                } else {
                    title(&folder.join("README.md"))?
                };
                let _ = writeln!(text, "- [{heading}]({name}/README.md)");
                for page in pages(&folder)? {
                    let _ = writeln!(
                        text,
                        "  - [{}]({name}/{page}.md)",
                        title(&folder.join(format!("{page}.md")))?
                    );
                }
            }
        }
        if index + 1 == PARTS.len() {
            for name in &left {
                let _ =
                    writeln!(text, "- [{}]({name}.md)", title(&docs.join(format!("{name}.md")))?);
            }
        }
    }
    Ok(text)
}

/// `api/errors.lock`: what it has, and a line for each code of the table that it has not.
pub(super) fn lock(root: &Path) -> Result<String> {
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
    };
    let (lock, table) = (read("api/errors.lock")?, read("crates/outboard-wire/src/code.rs")?);
    let (head, mut lines): (Vec<&str>, Vec<&str>) =
        lock.lines().partition(|line| line.starts_with('#'));
    for row in
        table.lines().map(str::trim).filter(|row| row.starts_with("OB") && row.ends_with("\";"))
    {
        let entry = row.split(" \"").next().unwrap_or(row);
        let code = entry.split(' ').next().unwrap_or(entry);
        if !lines.iter().any(|line| line.starts_with(code)) {
            lines.push(entry);
        }
    }
    lines.sort_unstable();
    Ok([head, lines].concat().join("\n") + "\n")
}

/// `docs/errors/README.md`.
pub(super) fn errors(root: &Path) -> Result<String> {
    let folder = root.join("docs/errors");
    let mut text = "# Error codes\n\nGenerated by `cargo xtask codegen`; do not edit. Every sentence in which Outboard says that something went wrong has a code. It keeps its \
                    meaning in all releases. `outboard explain CODE` prints the same pages.\n"
        .to_owned();
    let mut last = String::new();
    for page in pages(&folder)? {
        let title = title(&folder.join(format!("{page}.md")))?;
        let section = page.get(2..4).unwrap_or_default();
        if section != last {
            let name = SECTIONS
                .iter()
                .find(|(digits, _)| *digits == section)
                .map_or("Others", |(_, name)| name);
            let _ = write!(text, "\n## {name}\n\n");
            section.clone_into(&mut last);
        }
        let sentence = title.split_once(": ").map_or(title.as_str(), |(_, sentence)| sentence);
        let _ = writeln!(text, "- [{page}]({page}.md): {sentence}");
    }
    Ok(text)
}
