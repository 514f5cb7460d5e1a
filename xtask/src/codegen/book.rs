//! The book's table of contents and the lists of error codes: pages are found by their names,
//! titles are those of the pages.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Parts of the book and their pages, in the order in which a reader needs them.
const PARTS: &[(&str, &[&str])] = &[
    (
        "Use",
        &[
            "ways",
            "install",
            "using",
            "python",
            "jupyter",
            "vscode",
            "ssh",
            "several-servers",
            "files",
            "mpi",
            "collectives",
            "containers",
            "virtual-machines",
            "software-device",
            "ci",
        ],
    ),
    ("Serve", &["service", "security", "operations", "sharing", "observability", "uninstall"]),
    ("Share a pool", &["pool", "broker", "slurm", "kubernetes"]),
    (
        "Look up",
        &[
            "troubleshooting",
            "errors",
            "configuration",
            "limits",
            "transports",
            "clients",
            "compatibility",
            "coverage",
            "coverage-nvml",
            "coverage-nccl",
            "coverage-cufile",
            "glossary",
        ],
    ),
    (
        "Understand",
        &[
            "performance",
            "latency",
            "on-a-gpu",
            "protocol",
            "releases",
            "decisions",
            "unsteady",
            "image-log",
            "kubernetes-log",
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
    for (part, names) in PARTS {
        let _ = write!(text, "\n# {part}\n\n");
        for name in *names {
            if let Some(place) = left.iter().position(|other| other == name) {
                left.remove(place);
                let _ =
                    writeln!(text, "- [{}]({name}.md)", title(&docs.join(format!("{name}.md")))?);
            } else {
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
    }
    ensure!(
        left.is_empty(),
        "these pages of docs/ are in no part of the book: {}",
        left.join(", ")
    );
    Ok(text)
}

/// Between these lines of `README.md` stand the book's pages.
const README: (&str, &str) = (
    "<!-- The pages of docs/SUMMARY.md, by `cargo xtask codegen`. -->\n",
    "<!-- End of the pages. -->\n",
);
/// The most characters of a line.
const WIDTH: usize = 100;

/// `README.md`, with the parts of the book.
pub(super) fn readme(root: &Path) -> Result<String> {
    let path = root.join("README.md");
    let text = fs::read_to_string(&path).context("cannot read README.md")?;
    let (begin, end) = README;
    let (before, rest) = text.split_once(begin).context("README.md has no place for the pages")?;
    let (_, after) = rest.split_once(end).context("README.md has no end of the pages")?;
    let docs = root.join("docs");
    let mut list = String::new();
    for (part, names) in PARTS {
        let links = names.iter().map(|name| link(&docs, name)).collect::<Result<Vec<_>>>()?;
        list += &filled(&format!("- *{part}*: {}.", links.join(", ")));
    }
    Ok([before, begin, &list, end, after].concat())
}

/// A link from the repository's root to a page, or to a folder's list of pages.
fn link(docs: &Path, name: &str) -> Result<String> {
    let page = docs.join(format!("{name}.md"));
    let (page, file) = if page.exists() {
        (page, format!("{name}.md"))
    } else {
        (docs.join(name).join("README.md"), format!("{name}/README.md"))
    };
    Ok(format!("[{}](docs/{file})", title(&page)?))
}

/// An entry of a list, in lines that are not too wide.
fn filled(entry: &str) -> String {
    let mut lines = vec![String::new()];
    for word in entry.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("  {word}"));
        } else {
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{word}");
        }
    }
    lines.join("\n") + "\n"
}

/// `crates/outboard-cli/src/docs/pages.rs`.
pub(super) fn embedded(root: &Path) -> Result<String> {
    let mut text =
        "//! Generated by `cargo xtask codegen`; do not edit.\n\n/// The names of pages, and the \
                    pages.\npub(super) const PAGES: &[(&str, &str)] = &[\n"
            .to_owned();
    for name in pages(&root.join("docs"))? {
        let _ = writeln!(text, "    (\"{name}\", include_str!(\"../../../../docs/{name}.md\")),");
    }
    Ok(text + "];\n")
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
