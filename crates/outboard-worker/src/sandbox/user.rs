//! The user that workers run as.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::accounts;

/// A user, its group and the further groups it is in, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    id: u32,
    group: u32,
    groups: Vec<u32>,
}

impl User {
    /// The user of this name or number, as the system knows it. `Err` says why it will not do, in a
    /// sentence.
    pub fn named(text: &str) -> Result<User, String> {
        if !geteuid().is_root() {
            return Err(
                "only a server that root starts can give its workers another user".to_owned()
            );
        }
        let found = match text.parse() {
            Ok(id) => accounts::by_number(id),
            Err(_) => accounts::by_name(text),
        };
        let found = found
            .map_err(|error| format!("the users of this machine cannot be looked up: {error}"))?;
        let user = found.ok_or_else(|| {
            format!("this machine has no user `{text}`; `useradd --system --no-create-home {text}` makes one")
        })?;
        if user.id == 0 {
            return Err("workers are to be kept from root's rights: name another user".to_owned());
        }
        let groups = accounts::groups(&user)
            .map_err(|error| format!("the groups of user `{text}` cannot be looked up: {error}"))?;
        Ok(User { id: user.id, group: user.group, groups })
    }

    /// Makes a folder of this user's own, or finds it so.
    pub fn own_folder(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt};
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => std::os::unix::fs::chown(path, Some(self.id), Some(self.group)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = std::fs::symlink_metadata(path)?;
                let fits = found.is_dir() && found.uid() == self.id;
                let sentence =
                    || format!("it is there and not a folder of the workers' user ({})", self.id);
                if fits { Ok(()) } else { Err(io::Error::other(sentence())) }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes this process, which has one thread, the user's. It needs to be root's.
    pub(super) fn take_on(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let (id, group) = (Uid::from_raw(self.id), Gid::from_raw(self.group));
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(id, id, id)?;
        // A process that has changed its user may not look at itself otherwise, which drivers do.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
        Ok(())
    }
}

/// Gives up what root may do beyond other users: all capabilities.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(())
}

/// Numbers, as they are handed to a worker: user, group and groups.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.group)?;
        self.groups.iter().try_for_each(|group| write!(f, ":{group}"))
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([id, group, groups @ ..]) => {
                Ok(User { id: *id, group: *group, groups: groups.to_vec() })
            }
            _ => Err(format!("`{text}` is not USER:GROUP[:GROUP...]")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_goes_to_a_worker_by_numbers() {
        let user = User { id: 7, group: 8, groups: vec![8, 44] };
        assert_eq!(user.to_string().parse(), Ok(user));
        for text in ["", "7", "7:", "a:b", "7:8:-1"] {
            assert!(text.parse::<User>().is_err(), "{text}");
        }
    }

    /// Where somebody else than root runs this, every answer is that only root can.
    #[test]
    fn root_is_no_user_for_workers_and_strangers_are_named() {
        assert!(User::named("root").is_err() && User::named("0").is_err());
        if geteuid().is_root() {
            let error = User::named("nobody-of-that-name").unwrap_err();
            assert!(error.contains("nobody-of-that-name") && error.contains("useradd"), "{error}");
            let nobody = User::named("nobody").expect("every system has it");
            assert_ne!(nobody.id, 0);
            assert_eq!(User::named(&nobody.id.to_string()), Ok(nobody));
        } else {
            assert!(User::named("nobody").is_err());
        }
    }
}
