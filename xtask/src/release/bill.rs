//! The bill of materials: of which crates the programs of a release consist, as CycloneDX.
//!
//! cargo-cyclonedx writes a bill for each package, beside its `Cargo.toml`: it gets a copy of the
//! commit. Those of what is shipped become one here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::source::Source;
use super::tools;
use crate::stage::PACKAGES;
use crate::util::{self, root};

/// Writes and returns it.
pub(super) fn make(work: &Path, to: &Path, source: &Source) -> Result<Value> {
    let copy = work.join("source");
    copy_commit(&copy)?;
    let mut cyclonedx = tools::CYCLONEDX.command()?;
    // All targets: one bill is for both processors.
    cyclonedx.args(["cyclonedx", "--format", "json", "--spec-version", "1.5", "--target", "all"]);
    cyclonedx.args(["--quiet", "--manifest-path"]).arg(copy.join("Cargo.toml"));
    util::run(cyclonedx.env("SOURCE_DATE_EPOCH", &source.epoch))?;
    let bills = PACKAGES.iter().map(|package| {
        let file = copy.join(format!("crates/{package}/{package}.cdx.json"));
        let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        // Where the copy lies is nothing to know.
        let text = text.replace(&copy.display().to_string(), "/outboard");
        serde_json::from_str(&text).context("a bill is JSON")
    });
    let one = merge(&bills.collect::<Result<Vec<Value>>>()?, source.version)?;
    let text = serde_json::to_string_pretty(&one).context("JSON can be written")? + "\n";
    fs::write(to.join(format!("outboard-{}.cdx.json", source.version)), text)
        .context("cannot write the bill of materials")?;
    Ok(one)
}

/// Copies the files of the commit.
fn copy_commit(to: &Path) -> Result<()> {
    fs::create_dir_all(to).context("cannot create a folder")?;
    let mut git = Command::new("git");
    git.args(["archive", "HEAD"]).current_dir(root()).stdout(Stdio::piped());
    let mut git = git.spawn().context("cannot start git")?;
    let files = git.stdout.take().context("its output is piped")?;
    util::run(Command::new("tar").arg("-x").arg("-C").arg(to).stdin(files))?;
    ensure!(git.wait()?.success(), "`git archive HEAD` failed");
    Ok(())
}

/// One bill of several: each component once, by its reference, and what it depends on.
fn merge(bills: &[Value], version: &str) -> Result<Value> {
    let first = bills.first().context("there are bills")?;
    let mut components: BTreeMap<String, Value> = BTreeMap::new();
    let mut dependencies: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut roots = BTreeSet::new();
    for bill in bills {
        let own = bill["metadata"]["component"].clone();
        roots.insert(text(&own["bom-ref"]));
        for component in std::iter::once(own).chain(list(&bill["components"])) {
            components.entry(text(&component["bom-ref"])).or_insert(component);
        }
        for entry in list(&bill["dependencies"]) {
            let on = list(&entry["dependsOn"]);
            dependencies.entry(text(&entry["ref"])).or_default().extend(on.iter().map(text));
        }
    }
    dependencies.insert("outboard".into(), roots);
    let dependencies: Vec<Value> = dependencies
        .into_iter()
        .map(|(reference, on)| json!({ "ref": reference, "dependsOn": on }))
        .collect();
    let mut metadata = first["metadata"].clone();
    metadata["component"] = json!({
        "type": "application", "bom-ref": "outboard", "name": "outboard", "version": version,
    });
    Ok(json!({
        "bomFormat": first["bomFormat"], "specVersion": first["specVersion"], "version": 1,
        "metadata": metadata,
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bills_become_one() {
        let bill = |name: &str, on: &[&str]| {
            let parts: Vec<_> = on.iter().map(|it| json!({ "bom-ref": it, "name": it })).collect();
            json!({
                "bomFormat": "CycloneDX", "specVersion": "1.5", "components": parts,
                "metadata": { "component": { "bom-ref": name }, "timestamp": "t" },
                "dependencies": [{ "ref": name, "dependsOn": on }, { "ref": "a" }],
            })
        };
        let one = merge(&[bill("cli", &["a", "b"]), bill("lib", &["a", "c"])], "1").unwrap();
        let names = |list: &Value, key: &str| -> Vec<String> {
            list.as_array().unwrap().iter().map(|it| it[key].as_str().unwrap().into()).collect()
        };
        assert_eq!(names(&one["components"], "bom-ref"), ["a", "b", "c", "cli", "lib"]);
        assert_eq!(names(&one["dependencies"], "ref"), ["a", "cli", "lib", "outboard"]);
        assert_eq!(one["dependencies"][3]["dependsOn"], json!(["cli", "lib"]));
        assert_eq!(one["metadata"]["component"]["version"], "1");
        assert_eq!(one["metadata"]["timestamp"], "t");
    }
}
