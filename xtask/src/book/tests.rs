//! The documentation hangs together: every link leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::util::root;

/// The files of the book.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("docs can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 60, "pages are found");
    pages
}

/// The text without what stands in blocks of code.
fn prose(page: &Path) -> String {
    let text =
        fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let mut code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            prose += line;
            prose.push('\n');
        }
    }
    assert!(!code, "{}: a block of code does not end", page.display());
    prose
}

/// What leads to the headings of a page.
fn anchors(page: &Path) -> BTreeSet<String> {
    let heading = |line: &str| {
        line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim().to_lowercase())
    };
    let kept = |letter: char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let anchor = |heading: String| {
        heading.chars().filter(|letter| kept(*letter)).collect::<String>().replace(' ', "-")
    };
    prose(page).lines().filter_map(heading).map(anchor).collect()
}

/// The targets of links, outside of code between backticks.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in text.lines() {
        let outside: String = line.split('`').step_by(2).collect();
        for part in outside.split("](").skip(1) {
            links.extend(part.split(')').next().map(str::to_owned));
        }
    }
    links
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    let mut broken = Vec::new();
    for page in pages().into_iter().chain(
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"]
            .map(|name| root().join(name)),
    ) {
        for link in links(&prose(&page)) {
            if link.contains("://") || link.is_empty() {
                continue;
            }
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().expect("it has a folder").join(file)
            };
            let found = target.exists() && (anchor.is_empty() || anchors(&target).contains(anchor));
            if !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    assert!(seen > 150, "links are found");
}

#[test]
fn headings_become_anchors() {
    let folder = crate::util::target_dir().join("anchors.md");
    fs::create_dir_all(folder.parent().expect("it has one")).expect("a folder can be made");
    fs::write(&folder, "# Start-up, and what a `server` keeps\n```\n# no heading\n```\n")
        .expect("it can be written");
    assert_eq!(
        anchors(&folder).into_iter().collect::<Vec<_>>(),
        ["start-up-and-what-a-server-keeps"]
    );
}

#[test]
fn tables_are_replaced_and_nothing_else() {
    let page = format!("a\n\n{}| old |\n\nb\n\n{}| old |\n", super::TABLES[0], super::TABLES[1]);
    let wanted =
        format!("a\n\n{}| x |\n\nb\n\n{}| y |\n| z |\n", super::TABLES[0], super::TABLES[1]);
    assert_eq!(super::with_tables(&page, "| x |\n\n| y |\n| z |\n").unwrap(), wanted);
    assert_eq!(super::with_tables(&wanted, "| x |\n\n| y |\n| z |\n").unwrap(), wanted);
    assert!(super::with_tables("a", "| x |\n").is_err());
}
