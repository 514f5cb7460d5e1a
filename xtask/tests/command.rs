//! `cargo xtask test` on a workspace whose tests fail, hang and change their minds on purpose.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

/// What tests of these workspaces share: whether the one with this name runs for the first time.
const FIRST_TIME: &str = r#"
fn is_first_time(test: &str) -> bool {
    std::fs::File::create_new(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(test)).is_ok()
}
"#;

/// What a run came to.
struct Run {
    succeeded: bool,
    /// The lines on standard output.
    lines: Vec<String>,
    told: String,
    folder: TempDir,
}

/// Runs the command on a workspace of one package: a program for each text of tests, and this page
/// of unsteady ones.
fn run(tests: &[&str], page: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let manifest = "[package]\nname = \"planted\"\nedition = \"2024\"\n[lib]\ndoctest = false\n";
    write("Cargo.toml", manifest);
    write("src/lib.rs", "");
    for (at, tests) in tests.iter().enumerate() {
        write(&format!("tests/planted{at}.rs"), &format!("{FIRST_TIME}{tests}"));
    }
    write("docs/unsteady.md", page);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["test", "--limit", "3", "--workspace"]).arg(folder.path());
    // Apart from the programs of this workspace.
    command.env("CARGO_TARGET_DIR", folder.path().join("target"));
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let lines = text(output.stdout).lines().map(str::to_owned).collect();
    Run { succeeded: output.status.success(), lines, told: text(output.stderr), folder }
}

impl Run {
    /// What was kept of an unsteady test of the program with this number.
    fn kept(&self, test: &str, program: u32, file: &str) -> String {
        let test = format!("{test}--in-tests-planted{program}-rs");
        let path = self.folder.path().join("target/unsteady").join(test).join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

#[test]
fn two_unsteady_tests_are_named_and_kept_and_the_run_is_green() {
    let run = run(
        &[
            r#"
            #[test] fn away() {
                use std::io::Write;
                std::io::stderr().write_all(b"\nskipped away: it is Monday\n").unwrap();
            }
            #[test] fn comes() { assert!(!is_first_time("comes"), "came late"); }
            "#,
            r#"#[test] fn ends() { if is_first_time("ends") { std::process::exit(7) } }"#,
        ],
        "",
    );
    assert!(run.succeeded, "{}", run.told);
    let [unsteady, closing] = &run.lines[..] else { panic!("{:?}", run.lines) };
    assert!(unsteady.starts_with("unsteady: 2 ("), "{unsteady}");
    for test in ["comes, in tests/planted0.rs", "ends, in tests/planted1.rs"] {
        assert!(unsteady.contains(test), "{unsteady}");
    }
    assert_eq!(closing, "2 passed, 0 failed, 1 skipped");
    assert!(run.told.contains("For other reasons:\n    away: it is Monday"), "{}", run.told);
    assert!(run.kept("comes", 0, "failed.txt").contains("came late"));
    assert!(run.kept("ends", 1, "failed.txt").contains("exit status: 7"));
    assert!(run.kept("ends", 1, "passed.txt").contains("test ends ... ok"));
    assert!(run.told.contains("running ends, in "), "{}", run.told);
}

#[test]
fn tests_that_are_broken_or_hang_or_may_not_fail_once_are_red() {
    let run = run(
        &[r#"
        #[test] fn a_steady() {}
        #[test] fn broken() { panic!("always") }
        #[test] fn a_hostile_one() { assert!(!is_first_time("hostile")); }
        #[test] fn hangs() { loop { std::thread::park() } }
        #[test] fn hangs_once() { while is_first_time("once") { loop { std::thread::park() } } }
        "#],
        "",
    );
    assert!(!run.succeeded, "{}", run.told);
    let [unsteady, closing] = &run.lines[..] else { panic!("{:?}\n{}", run.lines, run.told) };
    assert!(unsteady.starts_with("unsteady: 1 (hangs_once, in "), "{unsteady}");
    assert_eq!(closing, "2 passed, 3 failed, 0 skipped");
    let failed = run.told.split("\nFailed:\n").nth(1).expect("failures are named");
    for test in ["broken, in ", "a_hostile_one, in ", "hangs, in "] {
        assert!(failed.contains(test), "{failed}");
    }
    assert!(!run.told.contains("running a_hostile_one"), "{}", run.told);
}

#[test]
fn a_third_unsteady_test_is_red_and_so_is_one_that_nobody_explained() {
    let tests = r#"
        #[test] fn one() { assert!(!is_first_time("one")); }
        #[test] fn two() { assert!(!is_first_time("two")); }
        #[test] fn three() { assert!(!is_first_time("three")); }
        "#;
    let too_many = run(&[tests], "");
    assert!(!too_many.succeeded);
    assert_eq!(too_many.lines, ["0 passed, 3 failed, 0 skipped"]);
    let again = run(
        &[r#"#[test] fn one() { assert!(!is_first_time("one")); }"#],
        "### one, in tests/planted0.rs\n- Cause: not known\n",
    );
    assert!(!again.succeeded, "{}", again.told);
    assert_eq!(again.lines, ["0 passed, 1 failed, 0 skipped"]);
    assert!(again.told.contains("docs/unsteady.md does not say why"), "{}", again.told);
}
