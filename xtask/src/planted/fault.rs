//! A planted fault as its file describes it: three lines, and then a patch.
//!
//! ```text
//! Kind: order
//! Fault: A sentence that says what is wrong.
//! Found by: PACKAGE TARGET FILTER | PACKAGE TARGET FILTER
//! ```
//!
//! TARGET is `lib` or `bin` for unit tests, `test:NAME` for an integration test, and of
//! `outboard-e2e` also `e2e`, `suite` or `topology`. FILTER is a part of the names of tests; of
//! `e2e` it begins with the module.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::util;

/// The package of the end-to-end tests.
pub(super) const END_TO_END: &str = "outboard-e2e";

/// What kinds of faults there are.
pub(super) const KINDS: [&str; 15] = [
    "order",
    "bytes",
    "bounds",
    "leaks",
    "resume",
    "sandbox",
    "quotas",
    "graphs",
    "ptx",
    "errors",
    "authority",
    "pool",
    "nvml",
    "files",
    "figures",
];

#[derive(Debug)]
pub(super) struct Fault {
    /// The name of its file, without the ending.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) kind: String,
    /// What is wrong with it.
    pub(super) sentence: String,
    pub(super) found_by: Vec<Search>,
}

/// Tests that are to find a fault. They are in order of their programs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Search {
    pub(super) package: String,
    pub(super) target: Target,
    /// A part of their names.
    pub(super) filter: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// Unit tests of a library.
    Library,
    /// Unit tests of a package's programs.
    Binary,
    /// An integration test.
    Test(String),
    /// A module of the end-to-end tests; the filter begins with it.
    Module,
}

/// Where the faults are.
pub(super) fn folder() -> PathBuf {
    util::root().join("tests/planted")
}

impl Fault {
    /// All that there are, in order of their names.
    pub(super) fn all() -> Result<Vec<Fault>> {
        let entries = fs::read_dir(folder()).context("cannot list tests/planted")?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let patches =
            paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "patch"));
        let mut faults = patches.map(|path| Fault::read(&path)).collect::<Result<Vec<_>>>()?;
        faults.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(faults)
    }

    fn read(path: &Path) -> Result<Fault> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Fault::parse(name, path, &text).with_context(|| format!("cannot understand {shown}"))
    }

    fn parse(name: String, path: &Path, text: &str) -> Result<Fault> {
        let mut lines = text.lines();
        let mut said = |what: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(what)?.strip_prefix(": "));
            line.map(str::to_owned).with_context(|| format!("its head has no line `{what}: …`"))
        };
        let (kind, sentence, found_by) = (said("Kind")?, said("Fault")?, said("Found by")?);
        if !KINDS.contains(&kind.as_str()) {
            bail!("`{kind}` is no kind; the kinds are {}", KINDS.join(", "));
        }
        let found_by = found_by.split('|').map(Search::parse).collect::<Result<_>>()?;
        Ok(Fault { name, path: path.to_owned(), kind, sentence, found_by })
    }
}

impl Search {
    fn parse(text: &str) -> Result<Search> {
        let mut words = text.trim().splitn(3, ' ');
        let (Some(package), Some(target), Some(filter)) =
            (words.next(), words.next(), words.next())
        else {
            bail!("`{}` is not PACKAGE TARGET FILTER", text.trim());
        };
        let target = match (target, package) {
            ("lib", _) => Target::Library,
            ("bin", _) => Target::Binary,
            ("e2e", END_TO_END) => Target::Module,
            ("suite" | "topology", END_TO_END) => Target::Test(target.to_owned()),
            _ => match target.strip_prefix("test:") {
                Some(name) => Target::Test(name.to_owned()),
                None => bail!("{package} has no tests of the kind `{target}`"),
            },
        };
        Ok(Search { package: package.to_owned(), target, filter: filter.to_owned() })
    }

    /// Whether its tests use the installation and the compiled programs.
    pub(super) fn needs_installation(&self) -> bool {
        self.package == END_TO_END
    }

    /// The arguments that have cargo build its programs, and the filter for their tests' names.
    /// End-to-end tests are modules of one program if the source has that, else programs.
    pub(super) fn programs(&self, source: &Path) -> (Vec<String>, &str) {
        let (target, filter) = match (&self.target, self.filter.split_once("::")) {
            (Target::Library, _) => (vec!["--lib"], self.filter.as_str()),
            (Target::Binary, _) => (vec!["--bins"], self.filter.as_str()),
            (Target::Test(name), _) => (vec!["--test", name], self.filter.as_str()),
            (Target::Module, Some((module, test)))
                if !source.join("tests/e2e/tests/all.rs").is_file() =>
            {
                (vec!["--test", module], test)
            }
            (Target::Module, _) => (vec!["--test", "all"], self.filter.as_str()),
        };
        let package = ["--package", &self.package].into_iter();
        (package.chain(target).map(str::to_owned).collect(), filter)
    }
}

impl std::fmt::Display for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.package, self.filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_what_it_is_and_what_finds_it() {
        let text = "Kind: order\nFault: It is late.\nFound by: outboard-wire test:x late | \
                    outboard-e2e e2e daily::late | outboard-e2e topology topology events\n\ndiff";
        let fault = Fault::parse("late".into(), Path::new("late.patch"), text).unwrap();
        assert_eq!((fault.kind.as_str(), fault.sentence.as_str()), ("order", "It is late."));
        let folder = tempfile::tempdir().unwrap();
        let programs = |at: usize| {
            let (args, filter) = fault.found_by[at].programs(folder.path());
            format!("{} {filter}", args[1..].join(" "))
        };
        assert_eq!(programs(0), "outboard-wire --test x late");
        assert_eq!(programs(1), "outboard-e2e --test daily late");
        assert_eq!(programs(2), "outboard-e2e --test topology topology events");
        fs::create_dir_all(folder.path().join("tests/e2e/tests")).unwrap();
        fs::write(folder.path().join("tests/e2e/tests/all.rs"), "").unwrap();
        let (args, filter) = fault.found_by[1].programs(folder.path());
        assert_eq!((&*args[3], filter), ("all", "daily::late"));
    }

    #[test]
    fn a_head_that_lacks_something_is_told() {
        let parse = |text: &str| Fault::parse("x".into(), Path::new("x.patch"), text);
        let told = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(told("Kind: odd\nFault: x\nFound by: a lib b\n").contains("`odd` is no kind"));
        assert!(told("Kind: order\nFound by: a lib b\n").contains("no line `Fault: …`"));
        let with = |found: &str| told(&format!("Kind: order\nFault: x\nFound by: {found}\n"));
        assert!(with("a lib").contains("not PACKAGE TARGET FILTER"));
        assert!(with("outboard-wire e2e x").contains("no tests of the kind `e2e`"));
    }
}
