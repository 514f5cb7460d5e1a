//! The file of quotas: what owners and groups may have, and who is in which group.

use crate::desk::Rules;
use outboard_pool::state::Quota;
use outboard_pool::words::{GroupName, OwnerName, Size};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file is not as it should be.
#[derive(Debug, thiserror::Error)]
#[error("the quotas in {} cannot be used: {reason}", path.display())]
pub struct QuotasError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    /// Of every owner without an entry.
    #[serde(default)]
    every_owner: Entry,
    /// Of every group without an entry.
    #[serde(default)]
    every_group: Entry,
    #[serde(default)]
    owners: BTreeMap<OwnerName, Owner>,
    #[serde(default)]
    groups: BTreeMap<GroupName, Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    devices: Option<u64>,
    memory: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    group: Option<GroupName>,
    devices: Option<u64>,
    memory: Option<String>,
}

fn quota(devices: Option<u64>, memory: Option<&str>) -> Result<Quota, String> {
    let memory_bytes = memory
        .map(|text| text.parse().map(|Size(bytes)| bytes))
        .transpose()
        .map_err(|wrong: outboard_pool::words::Malformed| wrong.to_string())?;
    Ok(Quota { devices, memory_bytes })
}

impl Entry {
    fn quota(&self) -> Result<Quota, String> {
        quota(self.devices, self.memory.as_deref())
    }
}

/// Adds what a file says to the rules.
///
/// # Errors
///
/// If it cannot be read or understood.
pub fn read(path: &Path, rules: &mut Rules) -> Result<(), QuotasError> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    text.and_then(|text| apply(&text, rules))
        .map_err(|reason| QuotasError { path: path.to_owned(), reason })
}

fn apply(text: &str, rules: &mut Rules) -> Result<(), String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    rules.quotas.owner = file.every_owner.quota()?;
    rules.quotas.group = file.every_group.quota()?;
    for (name, owner) in file.owners {
        if let Some(group) = owner.group {
            rules.groups.insert(name.clone(), group);
        }
        if owner.devices.is_some() || owner.memory.is_some() {
            let own = quota(owner.devices, owner.memory.as_deref())?;
            rules.quotas.owners.insert(name, own);
        }
    }
    for (name, group) in file.groups {
        rules.quotas.groups.insert(name, group.quota()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_who_may_have_what() {
        let mut rules = Rules::default();
        let text = r#"
            [every-owner]
            devices = 4
            [owners.ada]
            group = "vision"
            devices = 8
            memory = "640G"
            [owners.bob]
            group = "vision"
            [groups.vision]
            devices = 10
        "#;
        apply(text, &mut rules).unwrap();
        let owner = |name: &str| rules.quotas.of_owner(&name.parse().unwrap());
        assert_eq!(owner("ada"), Quota { devices: Some(8), memory_bytes: Some(640 << 30) });
        assert_eq!(owner("bob"), Quota { devices: Some(4), memory_bytes: None });
        let group = rules.group(&"bob".parse().unwrap());
        assert_eq!(group.as_str(), "vision");
        assert_eq!(rules.quotas.of_group(&group).devices, Some(10));
        assert_eq!(rules.group(&"eve".parse().unwrap()).as_str(), "everybody");
    }

    #[test]
    fn mistakes_are_told() {
        for (text, part) in [
            ("[every-owner]\ndevcies = 4", "devcies"),
            ("[owners.\"a b\"]\ndevices = 4", "letters, digits"),
            ("[groups.x]\nmemory = \"1X\"", "no unit"),
            ("nonsense", "nonsense"),
        ] {
            let wrong = apply(text, &mut Rules::default()).unwrap_err();
            assert!(wrong.contains(part), "{text}: {wrong}");
        }
        let error = read(Path::new("/there/is/no/file"), &mut Rules::default()).unwrap_err();
        assert!(error.to_string().contains("/there/is/no/file"), "{error}");
    }
}
