//! The machinery of the compatibility matrix, so that it works when a GPU is at hand: its own
//! tests, and the cases that the software device can run, directly and through a server.

use outboard_e2e::{Folder, dist};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../compatibility")
}

fn python(args: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.args(args).current_dir(folder()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.output().expect("Python starts")
}

fn expect_success(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// The compiler that `cargo xtask toolchain` installs.
fn nvcc() -> PathBuf {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let mut folders =
        std::fs::read_dir(&lib).expect("`cargo xtask toolchain` has been run").flatten();
    let nvcc = folders.find_map(|entry| {
        let path = entry.path().join("site-packages/nvidia/cu13/bin/nvcc");
        path.exists().then_some(path)
    });
    nvcc.expect("nvcc is in .venv").canonicalize().expect("a path of this machine")
}

#[test]
fn its_own_tests_pass() {
    expect_success(&python(&["-m", "unittest", "discover", "."]));
}

#[test]
fn cases_pass_on_the_software_device() {
    let out = Folder::create();
    let (dist, nvcc) = (dist(), nvcc());
    let output = python(&[
        "run.py",
        "run",
        "--driver",
        "cpu",
        "--isolation",
        "if-possible",
        "--patience",
        "3",
        "--dist",
        dist.to_str().expect("a plain path"),
        "--out",
        out.to_str().expect("a plain path"),
        "--nvcc",
        nvcc.to_str().expect("a plain path"),
    ]);
    expect_success(&output);
    let results = std::fs::read(out.join("results.json")).expect("results are written");
    let results: serde_json::Value = serde_json::from_slice(&results).expect("results are JSON");
    let rows = results["rows"].as_array().expect("rows");
    let passed: Vec<&str> = rows
        .iter()
        .filter(|row| row["result"] == "passes")
        .filter_map(|row| row["name"].as_str())
        .collect();
    // Where nothing can be hidden, the case that proves it is hidden has nothing to prove.
    let unproven = usize::from(results["isolated"] == false);
    assert!(
        passed.len() + unproven == rows.len() && passed.len() > 3,
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let page = out.join("page.md");
    let results = out.join("results.json");
    let args = [results.to_str().expect("a plain path"), page.to_str().expect("a plain path")];
    expect_success(&python(&["run.py", "page", "--results", args[0], "--write", args[1]]));
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains("`runtime`") && text.contains("equal"), "{text}");
}
