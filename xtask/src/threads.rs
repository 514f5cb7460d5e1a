//! Threads in a program's process are started in one place (decision 79).

use std::fs;

use crate::tidy::files;

/// What lives in a program's process, by the folders of its sources.
const IN_PROGRAMS: &[&str] = &[
    "outboard-client",
    "outboard-cpu",
    "outboard-files",
    "outboard-front",
    "outboard-libcuda",
    "outboard-libcufile",
    "outboard-libnccl",
    "outboard-libnvml",
    "outboard-mpi",
    "outboard-nvml-answers",
    "outboard-rdma",
    "outboard-session",
    "outboard-simt",
    "outboard-table",
    "outboard-transport",
];

/// What shares a crate with them and is no program's: threads of servers, and of tests.
const OF_OTHERS: &[&str] =
    &["crates/outboard-files/src/turns.rs", "crates/outboard-transport/src/tls/over.rs"];

/// How the standard library starts threads.
const STARTS: &[&str] = &["thread::spawn(", "thread::Builder", "thread::scope(", "spawn_scoped("];

/// The lines of a file's code, without its tests, that start threads in another way.
fn starts(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    let starting = |line: &&str| STARTS.iter().any(|start| line.contains(start));
    code.lines().filter(starting).map(str::trim).collect()
}

#[test]
fn threads_in_programs_are_started_in_one_place() {
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        let text = path.to_string_lossy();
        let Some((_, place)) = text.split_once("/crates/") else { continue };
        let Some((package, file)) = place.split_once("/src/") else { continue };
        let place = format!("crates/{place}");
        let is_test = file.contains("tests") || file == "conformance.rs";
        if !IN_PROGRAMS.contains(&package) || is_test || OF_OTHERS.contains(&place.as_str()) {
            continue;
        }
        let code =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found.extend(starts(&code).into_iter().map(|line| format!("{place}: {line}")));
    }
    assert!(found.is_empty(), "outboard_threads::start does this: {found:#?}");
}

#[test]
fn starts_are_found() {
    let text = "fn a() {\n    std::thread::spawn(b);\n}\n#[cfg(test)]\nthread::scope(c);";
    assert_eq!(starts(text), ["std::thread::spawn(b);"]);
}
