//! The list of the files, with the release and the machines that they are for.

use std::collections::BTreeSet;
use std::fmt;

use semver::Version;

use crate::{MOST_TEXT, hex};

/// The most bytes that all files together may have.
pub const MOST_BYTES: u64 = 512 << 20;
const MOST_FILES: usize = 32;
const LONGEST_NAME: usize = 64;
/// The first line. What a key signs for another purpose begins otherwise.
const HEAD: &str = "outboard client library 1";

/// What a server hands out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The release whose client library it is.
    pub release: Version,
    /// The processor, as Rust names it.
    pub architecture: String,
    /// The files, each with another name.
    pub files: Vec<File>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name: letters, digits, `.`, `_`, `-` and `+`, of which the first is no `.`.
    pub name: String,
    /// Its length, in bytes.
    pub size: u64,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

/// A text is no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadManifest {
    /// It is longer than any manifest.
    #[error("it has more than {MOST_TEXT} bytes")]
    TooLong,
    /// It is something else.
    #[error("it does not begin as a manifest that this release understands")]
    Head,
    /// A line is not as it should be.
    #[error("its line {0} cannot be understood")]
    Line(usize),
    /// A name could lead out of a folder, or is there twice.
    #[error("`{0}` is no name for a file of it")]
    Name(String),
    /// Too many files, or none.
    #[error("it has no files, or more than {MOST_FILES}")]
    Files,
    /// The files are too large.
    #[error("its files have more than {} MiB", MOST_BYTES >> 20)]
    Bytes,
}

/// What a client takes.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Its processor.
    pub architecture: &'a str,
    /// The oldest release that it takes.
    pub oldest: Option<Version>,
}

/// Why a client does not take what a manifest lists, though the signature is good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFitting {
    /// It is for other machines.
    #[error("it is for {found}, and this machine is {wanted}")]
    Architecture {
        /// What it is for.
        found: String,
        /// This machine's.
        wanted: String,
    },
    /// A signature of long ago is as good as one of today, and may be of a release with mistakes.
    #[error("it is of release {found}, which is older than {oldest}")]
    Older {
        /// Its release.
        found: Version,
        /// The oldest that is taken.
        oldest: Version,
    },
}

/// A name that is one file of a folder, whatever the folder is.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}

impl Manifest {
    /// Reads one. Nothing in it is true before its signature was checked.
    ///
    /// # Errors
    /// [`BadManifest`] says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, BadManifest> {
        if bytes.len() > MOST_TEXT {
            return Err(BadManifest::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| BadManifest::Head)?;
        let mut lines = text.lines().zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEAD) {
            return Err(BadManifest::Head);
        }
        let mut said = |what: &str, number: usize| {
            let (line, _) = lines.next().ok_or(BadManifest::Line(number))?;
            line.strip_prefix(what).ok_or(BadManifest::Line(number)).map(str::to_owned)
        };
        let release = said("release ", 2)?.parse().map_err(|_| BadManifest::Line(2))?;
        let architecture = said("architecture ", 3)?;
        if !is_name(&architecture) {
            return Err(BadManifest::Line(3));
        }
        let files = lines.map(|(line, number)| File::parse(line, number));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        Manifest { release, architecture, files }.checked()
    }

    /// The same, if its names and sizes are within bounds.
    ///
    /// # Errors
    /// [`BadManifest`] says which are not.
    pub fn checked(self) -> Result<Manifest, BadManifest> {
        if self.files.is_empty() || self.files.len() > MOST_FILES {
            return Err(BadManifest::Files);
        }
        let mut names = BTreeSet::new();
        for File { name, .. } in &self.files {
            if !is_name(name) || !names.insert(name) {
                return Err(BadManifest::Name(name.clone()));
            }
        }
        let bytes = self.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.size));
        match bytes {
            Some(bytes) if bytes <= MOST_BYTES => Ok(self),
            _ => Err(BadManifest::Bytes),
        }
    }

    /// Whether a client takes it.
    ///
    /// # Errors
    /// [`NotFitting`] says why not.
    pub fn check_fit(&self, wanted: &Wanted<'_>) -> Result<(), NotFitting> {
        if self.architecture != wanted.architecture {
            return Err(NotFitting::Architecture {
                found: self.architecture.clone(),
                wanted: wanted.architecture.to_owned(),
            });
        }
        match &wanted.oldest {
            Some(oldest) if self.release < *oldest => {
                Err(NotFitting::Older { found: self.release.clone(), oldest: oldest.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// The text that is signed.
impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifest { release, architecture, files } = self;
        writeln!(f, "{HEAD}\nrelease {release}\narchitecture {architecture}")?;
        for File { name, size, sha256 } in files {
            writeln!(f, "{} {size} {name}", hex::text(sha256))?;
        }
        Ok(())
    }
}

impl File {
    fn parse(line: &str, number: usize) -> Result<File, BadManifest> {
        let wrong = || BadManifest::Line(number);
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().ok_or_else(wrong);
        let sha256 = hex::bytes(word()?).ok_or_else(wrong)?;
        let size = word()?.parse().map_err(|_| wrong())?;
        Ok(File { name: word()?.to_owned(), size, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(files: &str) -> Result<Manifest, BadManifest> {
        Manifest::parse(format!("{HEAD}\nrelease 0.2.0\narchitecture x86_64\n{files}").as_bytes())
    }

    fn line(size: u64, name: &str) -> String {
        format!("{} {size} {name}\n", "ab".repeat(32))
    }

    #[test]
    fn a_manifest_is_a_text() {
        let manifest = with(&(line(5, "libcuda.so.1") + &line(0, "libnccl.so.2"))).unwrap();
        assert_eq!(manifest.release, Version::new(0, 2, 0));
        assert_eq!(manifest.files.len(), 2);
        assert_eq!(Manifest::parse(manifest.to_string().as_bytes()), Ok(manifest));
    }

    #[test]
    fn no_name_leads_out_of_a_folder() {
        for name in ["..", "../x", "/etc/x", "a/b", ".hidden", "", "a b", "a\u{e9}", "x\0y"] {
            assert_eq!(with(&line(1, name)), Err(BadManifest::Name(name.into())), "{name:?}");
        }
        assert!(with(&line(1, &"x".repeat(65))).is_err());
        assert_eq!(with(&line(1, "a").repeat(2)), Err(BadManifest::Name("a".into())));
    }

    #[test]
    fn sizes_and_numbers_are_bounded() {
        assert_eq!(with(""), Err(BadManifest::Files));
        let many: String = (0..33).map(|number| line(1, &format!("f{number}"))).collect();
        assert_eq!(with(&many), Err(BadManifest::Files));
        assert_eq!(with(&line(MOST_BYTES + 1, "a")), Err(BadManifest::Bytes));
        assert_eq!(with(&(line(u64::MAX, "a") + &line(2, "b"))), Err(BadManifest::Bytes));
        assert_eq!(Manifest::parse(&[b'a'; MOST_TEXT + 1]), Err(BadManifest::TooLong));
        assert_eq!(with("ab 1 x\n"), Err(BadManifest::Line(4)));
        assert_eq!(Manifest::parse(b"outboard client library 2\n"), Err(BadManifest::Head));
    }

    #[test]
    fn older_releases_and_other_machines_are_not_taken() {
        let manifest = with(&line(1, "a")).unwrap();
        let wanted = |architecture, oldest: [u64; 3]| {
            let [major, minor, patch] = oldest;
            Wanted { architecture, oldest: Some(Version::new(major, minor, patch)) }
        };
        assert_eq!(manifest.check_fit(&wanted("x86_64", [0, 2, 0])), Ok(()));
        assert_eq!(manifest.check_fit(&Wanted { architecture: "x86_64", oldest: None }), Ok(()));
        let older = manifest.check_fit(&wanted("x86_64", [0, 2, 1])).unwrap_err();
        assert_eq!(older.to_string(), "it is of release 0.2.0, which is older than 0.2.1");
        let other = manifest.check_fit(&wanted("aarch64", [0, 1, 0])).unwrap_err();
        assert_eq!(other.to_string(), "it is for x86_64, and this machine is aarch64");
    }

    proptest! {
        #[test]
        fn any_text_is_a_manifest_or_none(text in "(outboard client library 1\nrelease 1.0.0\narchitecture x\n)?\\PC{0,200}") {
            if let Ok(manifest) = Manifest::parse(text.as_bytes()) {
                prop_assert_eq!(Manifest::parse(manifest.to_string().as_bytes()), Ok(manifest));
            }
        }
    }
}
