//! The Helm chart: the manifest deploy/kubernetes/server.yaml with values in some of its places.
//! What stands there is their default.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::source::Source;
use super::{archive, tools};
use crate::stage;
use crate::util::{self, root, said, step};

const MANIFEST: &str = "deploy/kubernetes/server.yaml";
/// Its namespace, which is Helm's business in a chart.
const NAMESPACE: &str = "  namespace: outboard\n";

/// A value: its name, what it is for, and what stands before it in the manifest, where it goes on
/// to the end of the line.
struct Value(&'static str, &'static str, &'static str);

const VALUES: [Value; 6] = [
    Value("image", "The image, built of deploy/container/Containerfile.", "          image: "),
    Value(
        "driver",
        "Whose devices: \"nvidia\", or \"cpu\" for the software device.",
        "    driver = ",
    ),
    Value(
        "runtimeClassName",
        "What NVIDIA's container toolkit is called.",
        "      runtimeClassName: ",
    ),
    Value(
        "gpuNodes",
        "The value of the label nvidia.com/gpu.present on nodes that get a server.",
        "        nvidia.com/gpu.present: ",
    ),
    Value(
        "memory",
        "For all sessions of a node together, page-locked memory included.",
        "            limits:\n              memory: ",
    ),
    Value(
        "monitoring",
        "The namespace that may ask for metrics.",
        "              kubernetes.io/metadata.name: ",
    ),
];

/// A chart's parts.
struct Chart {
    template: String,
    values: String,
}

/// Makes the chart's archive, once Helm has shown that it says what the manifest does. Without Go
/// there is no Helm, and the chart is packed all the same.
pub(super) fn make(work: &Path, to: &Path, source: &Source) -> Result<()> {
    let manifest = manifest()?;
    let Chart { template, values } = chart(&manifest)?;
    let folder = work.join("chart/outboard");
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap_or(&folder))?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("templates/server.yaml", &template)?;
    write("values.yaml", &values)?;
    let parts = root().join("deploy/helm");
    stage::place(&parts.join("NOTES.txt"), &folder.join("templates/NOTES.txt"))?;
    let about = fs::read_to_string(parts.join("Chart.yaml")).context("there is Chart.yaml")?;
    let versions = format!("version: {0}\nappVersion: {0}\n", source.version);
    write("Chart.yaml", &about.replace("version: 0.0.0\n", &versions))?;
    checked(&folder, &manifest)?;
    archive::pack(&folder, &to.join(format!("outboard-{}.tgz", source.version)), source)
}

fn manifest() -> Result<String> {
    fs::read_to_string(root().join(MANIFEST)).with_context(|| format!("cannot read {MANIFEST}"))
}

/// Puts values into the manifest's places.
fn chart(manifest: &str) -> Result<Chart> {
    ensure!(!manifest.contains("{{"), "{MANIFEST} has what Helm would replace");
    let mut template = documents(manifest)
        .into_iter()
        .filter(|document| !document.contains("kind: Namespace\n"))
        .collect::<Vec<_>>()
        .join("---\n");
    ensure!(template.contains(NAMESPACE), "{MANIFEST} has the namespace `outboard`");
    template = template.replace(NAMESPACE, "  namespace: {{ .Release.Namespace }}\n");
    let mut values = String::from("# Values of the chart; what else the manifest says is fixed.\n");
    for Value(name, purpose, before) in VALUES {
        let times = template.matches(before).count();
        ensure!(times == 1, "{MANIFEST} has {times} places for the chart's value `{name}`");
        let (head, rest) = template.split_once(before).context("it is there")?;
        let (value, tail) = rest.split_once('\n').context("a line ends")?;
        values += &format!("# {purpose}\n{name}: {value}\n");
        let quoted = if value.starts_with('"') { " | quote" } else { "" };
        template = format!("{head}{before}{{{{ .Values.{name}{quoted} }}}}\n{tail}");
    }
    Ok(Chart { template, values })
}

/// The documents of a manifest.
fn documents(text: &str) -> Vec<&str> {
    text.split("---\n").filter(|document| !document.trim().is_empty()).collect()
}

/// Fails unless Helm accepts the chart, and makes the manifest of it.
fn checked(folder: &Path, manifest: &str) -> Result<()> {
    if Command::new("go").arg("version").output().is_err() {
        step("skipped: Helm is built with Go, which is not here; the chart was not rendered");
        return Ok(());
    }
    let helm = |args: &[&str]| -> Result<String> {
        said(tools::HELM.command()?.args(args).arg(folder).env("HELM_CACHE_HOME", cache()))
    };
    helm(&["lint", "--strict"])?;
    let made = helm(&["template", "outboard", "--namespace", "outboard"])?;
    let (mut made, mut wanted) = (content(&made), content(manifest));
    wanted.retain(|document| !document.contains("kind: Namespace\n"));
    made.sort();
    wanted.sort();
    ensure!(
        made == wanted,
        "the chart's manifest differs from {MANIFEST}:\n{}",
        made.join("---\n")
    );
    step(&format!("Helm makes the {} objects of {MANIFEST} of the chart", made.len()));
    Ok(())
}

fn cache() -> PathBuf {
    util::target_dir().join("release-tools/helm-cache")
}

/// The documents without comments.
fn content(manifest: &str) -> Vec<String> {
    let lines = |document: &&str| -> String {
        let lines = document.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
    };
    documents(manifest).iter().map(lines).map(|text| text.trim().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place_in_the_manifest() {
        let manifest = manifest().expect("there is the manifest");
        let Chart { template, values } = chart(&manifest).expect("values have their places");
        assert!(values.contains("\nimage: outboard-server:"), "{values}");
        assert!(values.contains("\ndriver: \"nvidia\"\n"), "{values}");
        assert!(template.contains("\n    driver = {{ .Values.driver | quote }}\n"), "{template}");
        assert!(!template.contains("kind: Namespace"));
        // With the values in their places it is the manifest again.
        let mut again = template.replace("{{ .Release.Namespace }}", "outboard");
        for Value(name, ..) in VALUES {
            let line = values.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            let value = line.expect("a value has a default");
            for end in [" }}", " | quote }}"] {
                again = again.replace(&format!("{{{{ .Values.{name}{end}"), value);
            }
        }
        let fixed = content(&manifest);
        let fixed: Vec<_> =
            fixed.into_iter().filter(|it| !it.contains("kind: Namespace\n")).collect();
        assert_eq!(content(&again), fixed);
    }

    #[test]
    fn a_place_that_is_gone_is_told() {
        let manifest = manifest().expect("there is the manifest").replace("image: ", "picture: ");
        let error = chart(&manifest).err().expect("it fails").to_string();
        assert!(error.contains("0 places for the chart's value `image`"), "{error}");
    }
}
