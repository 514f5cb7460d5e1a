//! Since which version of the protocol there is each message, and in what form. A release speaks
//! with others, so what it has sent never changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::releases::{FILE, Releases};

const LOCK: &str = "api/wire-forms.lock";

/// The forms that are locked, and which of them may still change.
#[derive(Default)]
pub(super) struct Forms {
    releases: Releases,
    /// By message: minor version and form.
    locked: BTreeMap<String, (u16, String)>,
}

impl Forms {
    pub(super) fn read(root: &Path) -> Result<Forms> {
        let lock = std::fs::read_to_string(root.join(LOCK)).unwrap_or_default();
        Forms::from_parts(Releases::read(root)?, &lock)
    }

    fn from_parts(releases: Releases, lock: &str) -> Result<Forms> {
        let lines: BTreeMap<String, String> = toml::from_str(lock).context(LOCK)?;
        let mut locked = BTreeMap::new();
        for (name, line) in lines {
            let (version, form) = line.split_once(' ').context(LOCK)?;
            let (major, minor) = version.split_once('.').context(LOCK)?;
            // Another major version begins anew.
            if major.parse() == Ok(releases.protocol.major) {
                locked.insert(name, (minor.parse().context(LOCK)?, form.to_owned()));
            }
        }
        Ok(Forms { releases, locked })
    }

    /// Locks the form of a message, and says which minor version brought it.
    pub(super) fn lock(&mut self, name: &str, form: &str) -> Result<u16> {
        let minor = self.releases.protocol.minor;
        let last = self.releases.last();
        let since = match self.locked.get(name) {
            Some((since, locked)) if locked == form => return Ok(*since),
            Some((since, locked)) => {
                if let Some(last) = last.filter(|last| *since <= last.minor) {
                    bail!(
                        "{name} is `{form}`, and release {} has it as `{locked}`: describe a message of another name",
                        last.version
                    );
                }
                *since
            }
            None => {
                if let Some(last) = last.filter(|last| minor <= last.minor) {
                    bail!(
                        "{name} is new, and release {} speaks the same version of the protocol without it: raise `minor` in {FILE}",
                        last.version
                    );
                }
                minor
            }
        };
        self.locked.insert(name.to_owned(), (since, form.to_owned()));
        Ok(since)
    }

    pub(super) fn text(&self) -> String {
        let mut out = String::from(
            "# Forms of the messages in wire/, by `cargo xtask codegen`. What a release has does not change.\n",
        );
        for (name, (since, form)) in &self.locked {
            let _ = writeln!(out, "{name} = \"{}.{since} {form}\"", self.releases.protocol.major);
        }
        out
    }

    /// The version, in Rust.
    pub(super) fn version(&self) -> String {
        let protocol = &self.releases.protocol;
        format!(
            "/// The protocol's major version.\npub const MAJOR: u16 = {};\n\n/// The protocol's minor version.\npub const MINOR: u16 = {};\n\n/// The minor version of the first release: every server knows its messages.\npub const OLDEST: u16 = {};\n\n",
            protocol.major,
            protocol.minor,
            self.releases.oldest()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKED: &str = "lamp = \"1.4 posted (object u32)\"\nroom = \"1.5 call () -> (u32)\"\n";

    fn forms(minor: u16) -> Forms {
        let releases = format!(
            "[protocol]\nmajor = 1\nminor = {minor}\n[[released]]\nversion = \"0.1.0\"\ncommit = \"c0ffee\"\nminor = 4\n"
        );
        Forms::from_parts(toml::from_str(&releases).unwrap(), LOCKED).unwrap()
    }

    #[test]
    fn what_a_release_has_does_not_change() {
        let mut forms = forms(5);
        assert_eq!(forms.lock("lamp", "posted (object u32)").unwrap(), 4);
        assert_eq!(
            forms.lock("lamp", "posted (object u64)").unwrap_err().to_string(),
            "lamp is `posted (object u64)`, and release 0.1.0 has it as `posted (object u32)`: describe a message of another name"
        );
        // Nobody has seen this one.
        assert_eq!(forms.lock("room", "call () -> (u64)").unwrap(), 5);
        assert_eq!(forms.lock("shade", "posted ()").unwrap(), 5);
        assert!(forms.text().ends_with(
            "\nlamp = \"1.4 posted (object u32)\"\nroom = \"1.5 call () -> (u64)\"\nshade = \"1.5 posted ()\"\n"
        ));
    }

    #[test]
    fn a_new_message_needs_a_new_version() {
        assert_eq!(
            forms(4).lock("shade", "posted ()").unwrap_err().to_string(),
            "shade is new, and release 0.1.0 speaks the same version of the protocol without it: raise `minor` in api/releases.toml"
        );
    }
}
