//! Dashboards and alerts ask only for what is told, and for all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// All that a server tells: names of samples with the labels of each.
fn told(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.split("=\"").filter_map(|part| part.rsplit(['"', ',', '{']).next());
        let labels = labels.filter(|label| !label.is_empty() && *label != "}").map(str::to_owned);
        told.entry(name.to_owned()).or_default().extend(labels);
    }
    told
}

/// The queries somewhere in a dashboard.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if matches!(name.as_str(), "expr" | "definition") => {
                        found.push(text.clone())
                    }
                    value => queries(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// Names of metrics in a query, each with the labels that are asked of it.
fn asked(query: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    // What is in quotes names nothing.
    let query: String = query.split('"').step_by(2).collect();
    let mut rest = &*query;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if word.starts_with("outboard_") || word.starts_with("process_") {
            let selectors = behind
                .strip_prefix('{')
                .and_then(|inside| inside.split_once('}'))
                .map_or("", |(inside, _)| inside);
            let labels = selectors.split(',').filter_map(|part| part.split(['=', '!']).next());
            let labels = labels
                .map(str::trim)
                .filter(|label| !label.is_empty())
                .map(str::to_owned)
                .collect();
            found.push((word.to_owned(), labels));
        }
    }
    found
}

/// Labels that the monitoring system adds.
const ADDED: [&str; 2] = ["job", "instance"];

/// What is shipped for a monitoring system, by its paths below `deploy`.
#[derive(Debug)]
pub struct Shipped {
    /// The dashboard.
    pub dashboard: &'static str,
    /// The alerts.
    pub alerts: &'static str,
    /// At least so many queries are in them.
    pub queries: usize,
}

/// Checks dashboard and alerts against what is told, in the text format of OpenMetrics.
///
/// # Panics
///
/// If they do not fit.
pub fn check(text: &str, shipped: &Shipped) {
    let told = told(text);
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let read = |name: &str| {
        std::fs::read_to_string(deploy.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let dashboard: Value = serde_json::from_str(&read(shipped.dashboard)).unwrap();
    let mut all = Vec::new();
    queries(&dashboard, &mut all);
    let alerts = read(shipped.alerts);
    all.extend(
        alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ").map(str::to_owned)),
    );
    let mut used = BTreeSet::new();
    for query in &all {
        for (name, labels) in asked(query) {
            let known = told
                .get(&name)
                .unwrap_or_else(|| panic!("nobody tells {name}, which `{query}` asks for"));
            for label in labels.iter().filter(|label| !ADDED.contains(&label.as_str())) {
                assert!(
                    known.contains(label),
                    "{name} has no label {label}, which `{query}` asks for: {known:?}"
                );
            }
            used.insert(name);
        }
    }
    assert!(
        all.len() >= shipped.queries,
        "queries were found: {} of {} metrics",
        all.len(),
        used.len()
    );
    for name in told.keys().filter(|name| name.starts_with("outboard_")) {
        let base = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        assert!(used.iter().any(|used| used.starts_with(base)), "nobody shows {name}");
    }
}

#[test]
fn queries_are_understood() {
    let query =
        r#"sum by (owner) (rate(outboard_x_total{job=~"$job", class="a_b"}[5m])) > outboard_y"#;
    let wanted = vec![
        ("outboard_x_total".to_owned(), vec!["job".to_owned(), "class".to_owned()]),
        ("outboard_y".to_owned(), Vec::new()),
    ];
    assert_eq!(asked(query), wanted);
    let labels = &told("a{b=\"c\",d=\"e\"} 1\nf 2")["a"];
    assert!(labels.contains("b") && labels.contains("d") && labels.len() == 2, "{labels:?}");
}
