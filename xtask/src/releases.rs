//! What `api/releases.toml` says: the protocol's version, and the releases with theirs.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Where it is, in the repository.
pub(crate) const FILE: &str = "api/releases.toml";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Releases {
    pub(crate) protocol: Protocol,
    /// Oldest first.
    #[serde(default)]
    released: Vec<Release>,
}

/// The version that this source speaks.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Protocol {
    pub(crate) major: u16,
    pub(crate) minor: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// What it is built from.
    pub(crate) commit: String,
    /// The protocol's minor version that it speaks.
    pub(crate) minor: u16,
}

impl Releases {
    pub(crate) fn read(root: &Path) -> Result<Releases> {
        let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
        toml::from_str(&text).context(FILE)
    }

    /// The minor version of the first one; of this source, if there is none.
    pub(crate) fn oldest(&self) -> u16 {
        self.released.first().map_or(self.protocol.minor, |first| first.minor)
    }

    /// The newest one.
    pub(crate) fn last(&self) -> Option<&Release> {
        self.released.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::root;

    #[test]
    fn each_release_has_recorded_sessions() {
        let releases = Releases::read(&root()).unwrap();
        assert!(!releases.released.is_empty());
        for release in &releases.released {
            let folder = root().join("tests/e2e/recordings").join(&release.version);
            let files = std::fs::read_dir(&folder).map(Iterator::count).unwrap_or_default();
            assert!(files > 0, "{}: CONTRIBUTING.md says how to record", folder.display());
            assert!(release.minor <= releases.protocol.minor, "{}", release.version);
        }
    }
}
