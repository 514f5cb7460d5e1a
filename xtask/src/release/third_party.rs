//! The licences of the crates that the programs are built from, as one text beside them.
//!
//! The bill of materials says which crates these are, and their sources have the texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::util;

/// Its name, beside the licences of Outboard.
pub(super) const NAME: &str = "THIRD-PARTY.txt";

/// How names of files begin that have a crate's licence, or say whose it is.
const BEGINNINGS: [&str; 6] = ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE", "UNLICENSE"];

/// A crate of somebody else.
struct Crate {
    /// Its name and version.
    title: String,
    /// What its manifest says, in the words of SPDX.
    licence: String,
    texts: Vec<String>,
}

/// Writes it into a folder; where it is.
pub(super) fn make(bill: &Value, folder: &Path) -> Result<PathBuf> {
    let (file, crates) = (folder.join(NAME), crates(bill)?);
    ensure!(!crates.is_empty(), "the bill of materials names no crate");
    fs::write(&file, text(&crates)).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Those that a bill names, sorted.
fn crates(bill: &Value) -> Result<Vec<Crate>> {
    let title = |it: &Value| Some(format!("{} {}", it["name"].as_str()?, it["version"].as_str()?));
    let components = bill["components"].as_array().map_or(&[][..], Vec::as_slice);
    let named: BTreeSet<String> = components.iter().filter_map(title).collect();
    let mut cargo = util::cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked"]);
    let metadata: Value =
        serde_json::from_str(&util::said(&mut cargo)?).context("cargo says JSON")?;
    let packages = metadata["packages"].as_array().context("cargo says packages")?;
    let mut crates = Vec::new();
    // Outboard's own have no source.
    for package in packages.iter().filter(|package| package["source"].is_string()) {
        let Some(title) = title(package).filter(|title| named.contains(title)) else { continue };
        let manifest = package["manifest_path"].as_str().context("a package has a manifest")?;
        let folder = Path::new(manifest).parent().context("a manifest is in a folder")?;
        let licence = package["license"].as_str().unwrap_or("as its file says").to_owned();
        crates.push(Crate { title, licence, texts: texts(folder)? });
    }
    crates.sort_by(|one, other| one.title.cmp(&other.title));
    Ok(crates)
}

/// What the files of a crate say.
fn texts(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) && path.is_file()
    };
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_one).collect();
    files.sort();
    let read = |file: &PathBuf| -> Result<String> {
        let bytes = fs::read(file).with_context(|| format!("{}", file.display()))?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim_matches('\n').to_owned())
    };
    files.iter().map(read).collect()
}

/// Each text once, below the crates that have it.
fn text(crates: &[Crate]) -> String {
    let mut said = "Outboard's programs are built from Rust's standard library (MIT OR \
                    Apache-2.0) and these crates\nof https://crates.io, some of which only other \
                    systems need:\n\n"
        .to_owned();
    let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Crate { title, licence, texts } in crates {
        let nothing = if texts.is_empty() { ", without a file of its own" } else { "" };
        said += &format!("    {title}: {licence}{nothing}\n");
        for text in texts {
            let titles = owners.entry(text).or_default();
            if titles.last() != Some(&title.as_str()) {
                titles.push(title);
            }
        }
    }
    let mut owners: Vec<_> = owners.into_iter().map(|(text, titles)| (titles, text)).collect();
    owners.sort();
    for (titles, text) in owners {
        said += &format!("\n{}\n{}:\n\n{text}\n", "-".repeat(79), titles.join(", "));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_crates_share_is_written_once() {
        let one = |title: &str, texts: &[&str]| Crate {
            title: title.into(),
            licence: "MIT".into(),
            texts: texts.iter().map(ToString::to_string).collect(),
        };
        let said = text(&[
            one("a 1", &["mine"]),
            one("b 2", &["ours", "ours"]),
            one("c 3", &["ours"]),
            one("d 4", &[]),
        ]);
        let (list, texts) = said.split_once("\n\n-").expect("a list and texts");
        assert!(list.ends_with("    c 3: MIT\n    d 4: MIT, without a file of its own"), "{list}");
        assert_eq!(texts.matches("ours").count(), 1, "{texts}");
        assert!(texts.contains("\na 1:\n\nmine\n") && texts.contains("\nb 2, c 3:\n\nours\n"));
    }

    #[test]
    fn a_crate_has_its_own_texts() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        fs::create_dir(folder.join("licenses")).unwrap();
        for (name, text) in [("LICENSE-MIT", "\r\none\r\n"), ("Notice", "two"), ("lib.rs", "")] {
            fs::write(folder.join(name), text).unwrap();
        }
        assert_eq!(texts(folder).unwrap(), ["one", "two"]);
    }
}
