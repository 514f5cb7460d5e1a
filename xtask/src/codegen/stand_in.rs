//! Libraries that stand in for others: descriptions of their functions, and the coverage page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// How a function is done.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tier {
    /// By the front.
    Front,
    /// By the library itself.
    Own,
    /// Not at all.
    Refused,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meaning {
    pub(super) tier: Tier,
    /// Why it is refused.
    pub(super) why: Option<String>,
    /// The tests that use it.
    #[serde(default)]
    tests: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Facts {
    #[serde(default)]
    returns: BTreeMap<String, String>,
    functions: BTreeMap<String, Vec<(String, String)>>,
}

/// A function of the library.
pub(super) struct Described {
    pub(super) name: String,
    family: String,
    /// Names and types, as the header has them.
    pub(super) params: Vec<(String, String)>,
    /// What it returns, if it is not the library's usual type.
    pub(super) returns: Option<String>,
    pub(super) meaning: Meaning,
}

/// All functions of a library, by name: what `files` in `api/facts` say of each, and what a family
/// in `folder` does.
pub(super) fn read(root: &Path, files: &[&str], folder: &str) -> Result<Vec<Described>> {
    let mut facts = Facts::default();
    for file in files {
        let text = std::fs::read_to_string(root.join("api/facts").join(file))?;
        let read: Facts = toml::from_str(&text).with_context(|| format!("api/facts/{file}"))?;
        facts.returns.extend(read.returns);
        facts.functions.extend(read.functions);
    }
    let mut functions = Vec::new();
    for entry in std::fs::read_dir(root.join(folder))? {
        let path = entry?.path();
        let family = path.file_stem().and_then(|s| s.to_str());
        let family = family.with_context(|| format!("odd file name in {folder}"))?;
        let table: BTreeMap<String, Meaning> = toml::from_str(&std::fs::read_to_string(&path)?)
            .with_context(|| path.display().to_string())?;
        for (name, meaning) in table {
            let params = facts.functions.remove(&name);
            let params = params
                .with_context(|| format!("api/facts have no {name}, or it is there twice"))?;
            if (meaning.tier == Tier::Refused) != meaning.why.is_some() {
                bail!("{name}: a reason (`why`) belongs to what is refused, and to nothing else");
            }
            let returns = facts.returns.get(&name).cloned();
            functions.push(Described { family: family.to_owned(), name, params, returns, meaning });
        }
    }
    if let Some(name) = facts.functions.keys().next() {
        bail!("{name} has no entry in {folder}/");
    }
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(functions)
}

impl Described {
    pub(super) fn is_refused(&self) -> bool {
        self.meaning.tier == Tier::Refused
    }
}

/// The part of a coverage page below its head.
pub(super) fn families<'a>(functions: impl Iterator<Item = &'a Described>) -> String {
    let mut families: BTreeMap<&str, Vec<&Described>> = BTreeMap::new();
    for f in functions {
        families.entry(&f.family).or_default().push(f);
    }
    let mut out = String::new();
    for (family, functions) in families {
        let _ =
            writeln!(out, "## {family}\n\n| function | works | tests, or why not |\n|---|---|---|");
        for f in functions {
            let works = if f.is_refused() { "–" } else { "yes" };
            let more = f.meaning.why.clone().unwrap_or_else(|| f.meaning.tests.join(", "));
            let _ = writeln!(out, "| `{}` | {works} | {more} |", f.name);
        }
        out.push('\n');
    }
    out
}
