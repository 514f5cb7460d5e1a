//! The tests of the Python modules: in an environment of their own, into which pip installs them as
//! a user would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::ssh;
use crate::stage::{self, Dist};
use crate::test::{Attempt, Count, Failure, judge, padded_failures};
use crate::util::{self, root, step};

/// What the tests need from PyPI.
const PACKAGES: [&str; 3] = ["pytest==9.2.0", "pytest-timeout==2.4.0", "setuptools==80.9.0"];
/// Projects whose packages some tests use, with what pip is told for each. Without one, its tests
/// are skipped.
const OTHERS: [(&str, &[&str]); 3] = [
    ("Jupyter's kernel", &["ipykernel==7.4.0", "jupyter_client==8.10.0"]),
    (
        "Numba",
        &[
            "numba==0.61.2",
            "cuda-python==12.8.0",
            "nvidia-cuda-nvcc-cu12==12.8.93",
            "nvidia-cuda-runtime-cu12==12.8.90",
        ],
    ),
    // Without what only CuPy needs: 2 GB.
    (
        "kvikio",
        &[
            "--no-deps",
            "kvikio-cu12==26.10.0",
            "libkvikio-cu12==26.10.0",
            "rapids-logger==0.3.0",
            "cuda-pathfinder==1.9.1",
            "nvidia-cufile-cu12==1.14.1.1",
        ],
    ),
];
/// Where the tests are.
const PLACE: &str = "python";
/// How many seconds a test may take.
const LIMIT: &str = "300";

/// Runs them with what is laid out.
pub(crate) fn tests() -> Result<Count> {
    let dist = Dist::laid_out()?;
    let folder = util::target_dir().join("python");
    let python = environment(&folder)?;
    install(&python, &folder)?;
    let run = |test: &str| Count::of(&mut pytest(&python, &dist, test), counted);
    let (count, _) = run("tests")?;
    Ok(judge(count, |failure| Attempt::of(run(&failure.test))))
}

/// pytest for a folder, or for a test as pytest names it.
fn pytest(python: &Path, dist: &Dist, tests: &str) -> Command {
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "--color", "no", "--durations", "3"]);
    pytest.args(["-rfEs", "--timeout", LIMIT, tests]);
    pytest
        .current_dir(root().join("python"))
        .env("OUTBOARD_TEST_DIST", &dist.dir)
        .envs(ssh::machine().map(|program| ("OUTBOARD_TEST_SSHD", program)))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTHONPATH");
    pytest
}

/// An interpreter that can be a kernel of Jupyter, and start one.
pub(crate) fn with_jupyter() -> Result<PathBuf> {
    let python = environment(&util::target_dir().join("python"))?;
    let mut asked = Command::new(&python);
    let there = asked.args(["-c", "import ipykernel, jupyter_client"]).output()?.status.success();
    if there { Ok(python) } else { anyhow::bail!("ipykernel cannot be had from PyPI") }
}

/// The interpreter of an environment that has the packages; made anew when they change.
fn environment(folder: &Path) -> Result<PathBuf> {
    let (venv, stamp) = (folder.join("venv"), folder.join("packages.txt"));
    let python = venv.join("bin/python");
    let all = std::iter::once(&PACKAGES[..]).chain(OTHERS.map(|(_, packages)| packages));
    let wanted = all.collect::<Vec<_>>().concat().join("\n");
    if !python.exists() || !fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        step("installing pytest, a kernel of Jupyter, Numba and kvikio from PyPI");
        fs::create_dir_all(folder)?;
        util::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        util::run(pip(&python).args(PACKAGES))?;
        let mut is_whole = true;
        for (project, packages) in OTHERS {
            if let Err(error) = util::run(pip(&python).args(packages)) {
                step(&format!("{project} cannot be had: {error:#}"));
                is_whole = false;
            }
        }
        if is_whole {
            fs::write(&stamp, wanted)?;
        }
    }
    Ok(python)
}

/// Has pip build and install a copy: setuptools builds in the folder that it is given.
fn install(python: &Path, folder: &Path) -> Result<()> {
    let source = folder.join("source");
    let _ = fs::remove_dir_all(&source);
    for package in stage::PYTHON {
        stage::modules(&root().join("python").join(package), &source.join(package))?;
    }
    fs::copy(root().join("python/pyproject.toml"), source.join("pyproject.toml"))?;
    util::run(
        pip(python).args(["--no-index", "--no-build-isolation", "--force-reinstall"]).arg(&source),
    )
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check", "--quiet", "install"]);
    pip
}

/// What pytest says last: `SKIPPED [1] test_it.py:61: why` for each place where tests were skipped,
/// `FAILED test_it.py::name - why`, and `=== 2 failed, 16 passed, 1 skipped in 10.65s ===`. An error
/// outside of a test is a failure.
fn counted(lines: &[String]) -> Count {
    let words: Vec<&str> = lines
        .last()
        .map(|last| last.split([' ', ',']).filter(|word| !word.is_empty()).collect())
        .unwrap_or_default();
    let number = |what: &str| -> u64 {
        let found = words.windows(2).find(|pair| pair[1].starts_with(what));
        found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
    };
    let skipped = lines.iter().filter_map(|line| {
        let (times, place) = line.strip_prefix("SKIPPED [")?.split_once("] ")?;
        Some(std::iter::repeat_n(place.to_owned(), times.parse().ok()?))
    });
    let failed = lines.iter().filter_map(|line| {
        let name = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
        Some(Failure::new(name.split(" - ").next().unwrap_or(name), PLACE, ""))
    });
    Count {
        passed: number("passed"),
        failed: padded_failures(failed.collect(), number("failed") + number("error"), PLACE),
        skipped: skipped.flatten().collect(),
        ..Count::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_pytest_is_read() {
        let counted = |text: &str| {
            let count = counted(&text.lines().map(str::to_owned).collect::<Vec<_>>());
            let failed: Vec<String> = count.failed.iter().map(|test| test.test.clone()).collect();
            (count.passed, failed, count.skipped)
        };
        let skipped = "FAILED test_it.py::name - no\nERROR test_it.py::other\n\
                       SKIPPED [2] test_process.py:61: no such thing";
        let failed = ["test_it.py::name", "test_it.py::other", "a test"];
        let failed = failed.map(str::to_owned).to_vec();
        let last = "==== 2 failed, 16 passed, 2 skipped, 1 error in 10.65s ====";
        let place = "test_process.py:61: no such thing".to_owned();
        assert_eq!(
            counted(&format!("{skipped}\n{last}")),
            (16, failed, vec![place.clone(), place])
        );
        assert_eq!(counted("===== 18 passed in 10.65s ====="), (18, vec![], vec![]));
        assert_eq!(counted("no tests ran in 0.07s"), (0, vec![], vec![]));
    }

    #[test]
    fn the_modules_have_the_release_of_the_rest() {
        let project = fs::read_to_string(root().join("python/pyproject.toml")).unwrap();
        assert!(project.contains(&format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"))));
        for package in stage::PYTHON {
            assert!(project.contains(&format!("\"{}\"", package.replace('/', "."))), "{package}");
        }
    }
}
