//! Rules of the house that no compiler checks, as tests.

use crate::util::root;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, lowest first: each may depend only on those before it.
const LAYERS: &[&str] = &[
    "outboard-abi",
    "outboard-ranges",
    "outboard-threads",
    "outboard-rdma",
    "outboard-wire",
    "outboard-files",
    "outboard-transport",
    "outboard-session",
    "outboard-image",
    "outboard-nvml",
    "outboard-nvml-answers",
    "outboard-pool",
    "outboard-signed",
    "outboard-front",
    "outboard-client",
    "outboard-libcuda",
    "outboard-table",
    "outboard-libcufile",
    "outboard-libnccl",
    "outboard-libnvml",
    "outboard-mpi",
    "outboard-driver",
    "outboard-control",
    "outboard-auth",
    "outboard-broker-client",
    "outboard-worker",
    "outboard-supervisor",
    "outboard-broker",
    "outboard-ptx",
    "outboard-simt",
    "outboard-cpu",
    "outboard-bench",
    "outboard-cli",
];

/// Crates that parse what strangers send, or hold the protocol: no unsafe code at all.
const WITHOUT_UNSAFE: &[&str] = &[
    "outboard-ranges",
    "outboard-files",
    "outboard-wire",
    "outboard-session",
    "outboard-image",
    "outboard-nvml",
    "outboard-pool",
    "outboard-signed",
    "outboard-auth",
    "outboard-broker-client",
    "outboard-broker",
    "outboard-ptx",
];

/// What belongs to one machine or one moment, not into the repository. Split, so that this file
/// passes.
const FORBIDDEN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/opt", "/obv"),
    concat!("/ho", "me/"),
    concat!("FIX", "ME"),
];

fn manifest(package: &str) -> toml::Table {
    let path = root().join("crates").join(package).join("Cargo.toml");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file that git would commit, with these endings.
pub(crate) fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root(), endings, &mut found);
    found.sort();
    assert!(found.len() > 50, "the repository has files");
    found
}

fn collect(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        let kind = entry.file_type().expect("a file has a type");
        if kind.is_dir() {
            if !matches!(name.as_str(), "target" | ".git" | ".venv" | "corpus" | "shared")
                && !name.starts_with(".c")
            {
                collect(&path, endings, found);
            }
        } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

#[test]
fn crates_depend_only_on_lower_layers() {
    let mut present: Vec<String> = fs::read_dir(root().join("crates"))
        .expect("crates/ can be listed")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    present.sort();
    let mut listed: Vec<&str> = LAYERS.to_vec();
    listed.sort_unstable();
    assert_eq!(present, listed, "every crate has its place in the list of layers");
    for (layer, package) in LAYERS.iter().enumerate() {
        let manifest = manifest(package);
        for table in ["dependencies", "build-dependencies"] {
            let dependencies =
                manifest.get(table).and_then(|value| value.as_table()).cloned().unwrap_or_default();
            for (name, _) in dependencies.iter().filter(|(name, _)| name.starts_with("outboard-")) {
                let below = LAYERS
                    .iter()
                    .position(|other| other == name)
                    .is_some_and(|other| other < layer);
                assert!(
                    below,
                    "{package} may not depend on {name}: the list of layers is from low to high"
                );
            }
        }
    }
}

/// No client of the supervisor's can reach a driver there: it cannot even name one.
#[test]
fn the_supervisor_has_no_driver() {
    for package in ["outboard-supervisor", "outboard-control"] {
        let manifest = manifest(package);
        let dependencies = manifest.get("dependencies").and_then(|value| value.as_table());
        let dependencies = dependencies.expect("a crate has dependencies");
        for driver in ["outboard-driver", "outboard-worker", "libloading"] {
            assert!(!dependencies.contains_key(driver), "{package} may not depend on {driver}");
        }
    }
}

/// In a forked child the locks of `parking_lot` may sleep for ever, and NVML works there (decision
/// 40).
#[test]
fn what_nvml_uses_has_no_table_of_threads() {
    const USED: &[&str] = &[
        "crates/outboard-transport/",
        "crates/outboard-libnvml/",
        "crates/outboard-nvml-answers/",
        "crates/outboard-client/src/link/",
        "crates/outboard-client/src/query.rs",
        "crates/outboard-client/src/session/open.rs",
    ];
    let used = |path: &PathBuf| {
        let path = path.strip_prefix(root()).expect("it is in the repository");
        USED.iter().any(|used| path.starts_with(used))
    };
    let found: Vec<PathBuf> = files(&[".rs", ".toml"]).into_iter().filter(used).collect();
    assert!(found.len() > 50, "they have files");
    for path in found {
        let text = fs::read_to_string(&path).expect("it can be read");
        assert!(!text.contains("parking_lot"), "{} uses parking_lot", path.display());
    }
}

#[test]
fn crates_share_lints_and_licence() {
    for package in LAYERS {
        let manifest = manifest(package);
        let shared = |value: Option<&toml::Value>| {
            value.and_then(|v| v.get("workspace")).and_then(toml::Value::as_bool)
        };
        assert_eq!(
            shared(manifest.get("lints")),
            Some(true),
            "{package} takes the workspace's lints"
        );
        let licence = manifest.get("package").and_then(|table| table.get("license"));
        assert_eq!(shared(licence), Some(true), "{package} takes the workspace's licence");
    }
}

#[test]
fn parsers_are_free_of_unsafe_code() {
    for package in WITHOUT_UNSAFE {
        let path = root().join("crates").join(package).join("src/lib.rs");
        let text = fs::read_to_string(&path).expect("a crate has a root");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{package} forbids unsafe code");
    }
}

#[test]
fn nothing_belongs_to_one_machine() {
    let endings = [
        ".rs", ".toml", ".md", ".cu", ".cpp", ".h", ".sh", ".yml", ".yaml", ".lock", ".tsv", "run",
    ];
    for path in files(&endings) {
        let text =
            String::from_utf8_lossy(&fs::read(&path).expect("a file can be read")).into_owned();
        for word in FORBIDDEN {
            if let Some(line) = text.lines().position(|line| line.contains(word)) {
                panic!("{}:{}: {word} does not belong here", path.display(), line + 1);
            }
        }
    }
}

/// Every claim about security names a file that shows it.
#[test]
fn claims_about_security_are_shown() {
    let page = fs::read_to_string(root().join("SECURITY.md")).expect("there is the page");
    let (claims, places) =
        page.split_once("## Where these tests run").expect("it says where they run");
    let rows: Vec<&str> = claims
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| claim"))
        .collect();
    assert!(rows.len() > 5, "the page makes claims");
    let skips = |path: &str| {
        fs::read_to_string(root().join(path)).is_ok_and(|text| text.contains("skip!("))
    };
    for row in rows {
        let (claim, shown) = row
            .trim_end_matches('|')
            .trim_end()
            .rsplit_once(" | ")
            .expect("a claim and what shows it");
        let paths: Vec<&str> =
            shown.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains('/')).collect();
        assert!(!paths.is_empty(), "nothing shows: {claim}");
        for path in paths {
            let path = path.split("::").next().unwrap_or(path);
            assert!(
                root().join(path).exists() || path.starts_with('/'),
                "{path} is not there, which is to show: {claim}"
            );
            assert!(
                !skips(path) || places.contains(&format!("`{path}`")),
                "tests of {path} may be skipped: \"Where these tests run\" does not say when"
            );
        }
    }
}

#[test]
fn no_line_ends_with_a_blank() {
    for path in files(&[".rs", ".toml", ".md", ".cu", ".cpp", ".h", ".sh"]) {
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (number, line) in text.lines().enumerate() {
            assert!(
                !line.ends_with([' ', '\t']),
                "{}:{}: ends with a blank",
                path.display(),
                number + 1
            );
        }
    }
}

/// The widest line of prose and of comments; rustfmt's, of code.
const WIDTH: usize = 100;

/// Pages that commands write, wholly or in parts, and the book's contents, where an entry is a
/// line.
const UNWRAPPED: &[&str] = &[
    "crates/outboard-abi/src/generated.rs",
    "docs/SUMMARY.md",
    "docs/compatibility.md",
    "docs/coverage-nvml.md",
    "docs/coverage-cufile.md",
    "docs/coverage-nccl.md",
    "docs/coverage.md",
    "docs/errors/README.md",
    "docs/performance.md",
];

/// Tables, examples and what cannot be broken have the width that they need.
#[test]
fn prose_and_comments_are_wrapped() {
    let generated = ["generated", "expected", "facts"];
    let mut wrong = Vec::new();
    for path in files(&[".rs", ".md", ".toml"]) {
        let in_generated = path.iter().any(|part| generated.iter().any(|name| part == *name));
        if in_generated || UNWRAPPED.iter().any(|page| path.ends_with(page)) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a file can be read");
        let mut in_example = false;
        for (number, line) in text.lines().enumerate() {
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            let Some(prose) = prose_of(ending, line) else { continue };
            let is_fence = prose.trim_start().starts_with("```");
            in_example ^= is_fence;
            let is_example = in_example || is_fence || prose.starts_with("    ");
            let can_be_broken =
                prose.starts_with(|c: char| !"`|#".contains(c)) && prose.contains(' ');
            if line.chars().count() > WIDTH && !is_example && can_be_broken {
                wrong.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "wider than {WIDTH} characters:\n{}", wrong.join("\n"));
}

/// The prose in a line of a file with that ending; code has none.
fn prose_of<'a>(ending: &str, line: &'a str) -> Option<&'a str> {
    let marks: &[&str] = match ending {
        "rs" => &["/// ", "//! ", "// "],
        "toml" => &["# "],
        _ => return Some(line),
    };
    // A line of a string that is code has its escapes.
    let prose = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark))?;
    (!line.contains("\\n")).then_some(prose)
}

/// The tests of a file that is in no program would never run.
#[test]
fn every_file_of_end_to_end_tests_is_in_a_program() {
    let folder = root().join("tests/e2e/tests");
    let read = |path: PathBuf| fs::read_to_string(&path).expect("a file can be read");
    let (modules, manifest) =
        (read(folder.join("all.rs")), read(root().join("tests/e2e/Cargo.toml")));
    for file in fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".rs") else { continue };
        let is_module = modules.contains(&format!("\nmod {name};\n"));
        let is_program = manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"));
        assert!(is_module || is_program, "tests/e2e/tests/all.rs has no `mod {name};`");
    }
}
