//! As which user of this machine a thread asks the kernel.

use std::str::FromStr;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

const MOST_GROUPS: usize = 64;

/// A user of this machine with its groups.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// A text is no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no user: write UID:GID, such as 1000:100, and further groups as UID:GID,GID (as `id` \
     shows them)"
)]
pub struct BadUser(String);

impl FromStr for User {
    type Err = BadUser;

    /// `UID:GID`, or `UID:GID,GID,…` with further groups.
    fn from_str(text: &str) -> Result<User, BadUser> {
        let wrong = || BadUser(text.to_owned());
        // The largest means to the kernel: leave it as it is.
        let number = |word: &str| match word.parse() {
            Ok(u32::MAX) | Err(_) => Err(wrong()),
            Ok(number) => Ok(number),
        };
        let (uid, groups) = text.split_once(':').ok_or_else(wrong)?;
        let uid = number(uid)?;
        let mut groups = groups.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        if groups.len() > MOST_GROUPS {
            return Err(wrong());
        }
        let gid = groups.remove(0);
        Ok(User { uid, gid, groups })
    }
}

impl TryFrom<String> for User {
    type Error = BadUser;

    fn try_from(text: String) -> Result<User, BadUser> {
        text.parse()
    }
}

impl User {
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Has the kernel judge this thread as it judges the user, until the thread ends. If the user
    /// is the process's own, nothing changes.
    pub(crate) fn become_for_good(&self) -> Result<(), Errno> {
        let uid = Uid::from_raw(self.uid);
        if uid == geteuid() {
            return Ok(());
        }
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Gid::from_raw(self.gid), None)?;
        // The real and the saved user stay: with them, the user could send signals to this thread.
        set_thread_res_uid(None, uid, None)?;
        // The kernel takes these only from those who were root.
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_text() {
        assert_eq!("1000:100".parse(), Ok(User { uid: 1000, gid: 100, groups: vec![] }));
        assert_eq!("0:0,4,27".parse(), Ok(User { uid: 0, gid: 0, groups: vec![4, 27] }));
        let many = format!("1{}", ",1".repeat(MOST_GROUPS));
        for text in
            ["", "1000", "alice", "alice:100", "1000:", ":100", "-1:100", "1000:1,,2", "1:2:3"]
        {
            assert!(text.parse::<User>().is_err(), "{text}");
        }
        assert!("4294967295:1".parse::<User>().is_err(), "it would leave the user as it is");
        assert!("1:4294967295".parse::<User>().is_err());
        assert!(format!("1:{many}").parse::<User>().is_err());
    }

    #[test]
    fn a_thread_is_a_user_and_the_process_is_not() {
        if !geteuid().is_root() {
            outboard_test_support::skip!("only root may become another user");
        }
        let user: User = "1000:100,44".parse().unwrap();
        let thread = std::thread::spawn(move || {
            user.become_for_good().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            (status, Uid::ROOT == geteuid())
        });
        let (status, is_root) = thread.join().unwrap();
        assert!(!is_root);
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        // Real, effective, saved, and of files.
        assert_eq!(line("Uid:"), ["0", "1000", "0", "1000"]);
        assert_eq!(line("Gid:")[1], "100");
        assert_eq!(line("Groups:"), ["44"]);
        for set in ["CapEff:", "CapPrm:", "CapInh:"] {
            assert_eq!(line(set), ["0000000000000000"], "{set}");
        }
        assert!(geteuid().is_root(), "of the other threads nothing has changed");
    }
}
