//! Builds that lint what they compile, so that nothing is compiled for lints alone.

use std::path::PathBuf;
use std::process::Command;

use crate::util::{self, root};

/// What names to cargo the program that compiles a workspace's own crates in rustc's place.
pub(crate) const COMPILER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// Compiles a crate and lints it.
pub(crate) fn compiler() -> PathBuf {
    root().join("xtask/rustc.sh")
}

/// Cargo for this workspace, whose crates are linted when they are compiled. What it builds is
/// apart from what cargo builds by itself.
pub(crate) fn cargo() -> Command {
    let mut cargo = util::cargo();
    cargo.current_dir(root()).env(COMPILER, compiler());
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::files;
    use outboard_test_support::skip;
    use std::fs;
    use tempfile::TempDir;

    const FOR_CLIPPY: &str = "pub fn one() -> u8 { return 1; }";
    const UNUSED: &str = "fn nobody_calls_it() {}";

    /// Compiles a source as cargo has it done: `args` say what it becomes, `folder` where that
    /// goes, below the result. If it fails, what is said is the error.
    fn compile(source: &str, args: &[&str], folder: &str) -> Result<TempDir, String> {
        let out = tempfile::tempdir().expect("a folder");
        let into = out.path().join(folder);
        fs::create_dir(&into).expect("a folder");
        let path = out.path().join("source.rs");
        fs::write(&path, source).expect("a file");
        let mut command = Command::new(compiler());
        command.args(["rustc", "--crate-name", "a", "--edition=2024"]).arg(path);
        command.args(["--error-format=json", "--json=diagnostic-rendered-ansi,artifacts"]);
        command.args(args).args(["--emit=dep-info,link", "--out-dir"]).arg(&into);
        command.arg("-C").arg(format!("incremental={}", out.path().join("incremental").display()));
        let output = command.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(said);
        }
        let artifacts: Vec<&str> =
            said.lines().filter(|line| line.contains("\"$message_type\":\"artifact\"")).collect();
        assert!(
            artifacts.iter().all(|line| line.contains(&*out.path().to_string_lossy())),
            "cargo hears of other files: {said}"
        );
        assert_eq!(artifacts.iter().filter(|line| line.contains("\"link\"")).count(), 1, "{said}");
        Ok(out)
    }

    fn has_clippy() -> bool {
        Command::new("clippy-driver").arg("--version").output().is_ok()
    }

    #[test]
    fn clippy_looks_at_what_is_compiled_once() {
        if !has_clippy() {
            skip!("clippy is not installed");
        }
        let test = ["--crate-type", "lib", "--test"];
        let once: [(&[&str], &str); 5] = [
            (&test, "deps"),
            (&["--crate-type", "bin", "--cfg", "test"], "deps"),
            (&["--crate-type", "bin"], "examples"),
            (&["--crate-type", "cdylib"], "deps"),
            (&["--crate-type", "proc-macro"], "deps"),
        ];
        for (args, folder) in once {
            let source = if args.contains(&"proc-macro") {
                // It may export nothing else.
                FOR_CLIPPY.replace("pub fn", "#[allow(unused)] fn")
            } else {
                format!("{FOR_CLIPPY}\n#[allow(unused)] fn main() {{}}")
            };
            let said = compile(&source, args, folder).expect_err("clippy finds something");
            assert!(said.contains("clippy::needless_return"), "{args:?}: {said}");
        }
        let out = compile("pub fn nothing() {}", &test, "deps").expect("all is well");
        assert_eq!(fs::read_dir(out.path().join("deps")).expect("a folder").count(), 2);
    }

    /// Clippy sees these as programs of tests.
    #[test]
    fn rustc_alone_looks_at_what_is_compiled_twice() {
        for kind in ["lib", "bin"] {
            let compile = |function: &str| {
                let source = format!("{function}\n#[allow(unused)] fn main() {{}}");
                compile(&source, &["--crate-type", kind], "deps")
            };
            compile(&format!("#[allow(unused)] {FOR_CLIPPY}")).expect("rustc finds nothing");
            let said = compile(UNUSED).expect_err("nobody uses it");
            assert!(said.contains("nobody_calls_it"), "{said}");
        }
    }

    /// Clippy would not see what is left out.
    #[test]
    fn all_code_is_in_a_program_of_tests() {
        let metadata = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
        let metadata = util::said(util::cargo().current_dir(root()).args(metadata)).expect("cargo");
        let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
        let packages = metadata["packages"].as_array().expect("packages");
        let targets =
            packages.iter().flat_map(|package| package["targets"].as_array().expect("targets"));
        let compiled_twice = ["lib", "bin"];
        let (mut count, is) = (0, |target: &serde_json::Value, kind| target["kind"][0] == kind);
        for target in targets.filter(|target| compiled_twice.iter().any(|kind| is(target, *kind))) {
            count += 1;
            assert_eq!(target["test"], true, "{}", target["name"]);
        }
        assert!(count > 30, "{count}");
        let left_out = concat!("cfg(not(", "test))");
        for path in files(&[".rs"]) {
            let text = fs::read_to_string(&path).expect("it can be read");
            assert!(!text.contains(left_out), "{} has {left_out}", path.display());
        }
    }
}
