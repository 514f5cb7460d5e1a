//! The machinery of the compatibility matrix, so that it works when a GPU is at hand: its own
//! tests, and the cases and recipes that the software device can run, directly and through a
//! server.

use outboard_e2e::{Folder, dist, programs};
use outboard_test_support::skip;
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

/// Runs cases or recipes on the software device: all pass, and their number.
fn all_pass(script: &str, out: &Folder, options: &[&str]) -> usize {
    let (dist, out) = (dist(), out.to_str().expect("a plain path"));
    let mut args = vec![script, "run", "--driver", "cpu", "--isolation", "if-possible"];
    args.extend(["--patience", "3", "--dist", dist.to_str().expect("a plain path"), "--out", out]);
    args.extend(options);
    let output = python(&args);
    expect_success(&output);
    let written = ["results.json", "programs.json"].map(|name| Path::new(out).join(name));
    let written = written.iter().find(|path| path.exists()).expect("results are written");
    let results = std::fs::read(written).expect("results can be read");
    let results: serde_json::Value = serde_json::from_slice(&results).expect("results are JSON");
    let rows = results["rows"].as_array().expect("rows");
    let passed = rows.iter().filter(|row| row["result"] == "passes").count();
    // Where nothing can be hidden, the case that proves it is hidden has nothing to prove.
    let proof = |row: &&serde_json::Value| row["group"] == "isolation";
    let is_unproven = results["isolated"] == false && rows.iter().any(|row| proof(&row));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(passed + usize::from(is_unproven), rows.len(), "{said}");
    passed
}

#[test]
fn cases_pass_on_the_software_device() {
    let (out, nvcc) = (Folder::create(), nvcc());
    let passed = all_pass("run.py", &out, &["--nvcc", nvcc.to_str().expect("a plain path")]);
    assert!(passed > 3, "{passed}");
    let page = out.join("page.md");
    let results = out.join("results.json");
    let args = [results.to_str().expect("a plain path"), page.to_str().expect("a plain path")];
    expect_success(&python(&["run.py", "page", "--results", args[0], "--write", args[1]]));
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains("`runtime`") && text.contains("equal"), "{text}");
}

/// The folder that `cargo xtask debian-programs` makes, if it has this program.
fn unpacked(program: &str) -> Option<PathBuf> {
    let folder = programs().with_file_name("debian-programs");
    folder.join(program).exists().then_some(folder)
}

/// Runs the quick recipes of a program, of which there are so many.
fn recipes_pass(folder: &Path, program: &str, number: usize) {
    let (out, nvcc) = (Folder::create(), nvcc());
    let cuda = nvcc.parent().expect("a folder").with_file_name("lib");
    let plain = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let (folder, cuda) = (plain(folder), plain(&cuda));
    let options = ["--programs", &folder, "--groups", program, "--cuda", &cuda];
    assert_eq!(all_pass("programs.py", &out, &options), number);
    let page = out.join("page.md");
    std::fs::write(&page, "# A page\n").expect("a page");
    let results = plain(&out.join("programs.json"));
    let args = ["programs.py", "page", "--results", &results, "--write", &plain(&page)];
    expect_success(&python(&args));
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.starts_with("# A page\n\n## Debian's programs\n"), "{text}");
}

macro_rules! recipes {
    ($program:literal, $number:literal) => {
        match unpacked($program) {
            Some(folder) => recipes_pass(&folder, $program, $number),
            None => skip!("Debian's {} is not installed in target", $program),
        }
    };
}

#[test]
fn debians_hashcat_finds_passwords_on_the_software_device() {
    recipes!("hashcat", 1);
}

#[test]
fn debians_mumax3_is_right_on_the_software_device() {
    recipes!("mumax3", 2);
}

#[test]
fn debians_starpu_is_right_on_the_software_device() {
    recipes!("starpu", 6);
}
