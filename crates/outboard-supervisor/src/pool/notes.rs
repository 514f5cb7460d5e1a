//! What a server notes of its pool for the next one: leases of its sessions, and what the broker
//! has said.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use outboard_pool::lease::Lease;
use outboard_pool::words::LeaseNumber;
use serde::{Deserialize, Serialize};

use outboard_auth::files::write_secret;

use super::ended::Ended;

/// How the names of files begin that are about leases.
const LEASE: &str = "lease-";
/// The file about what the broker has said.
const BROKER: &str = "pool.json";

/// A folder that only the server's user can enter.
#[derive(Debug, Clone)]
pub(crate) struct Notes(PathBuf);

/// What a broker has last said, for the next server to know while the broker is away. Fields are
/// only ever added, with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Heard {
    pub(super) keys: Vec<String>,
    /// As a server of an older release notes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ended: Vec<LeaseNumber>,
    pub(super) over: Ended,
}

impl Notes {
    pub(crate) fn in_folder(path: &Path) -> Notes {
        Notes(path.to_owned())
    }

    fn lease_file(&self, number: LeaseNumber) -> PathBuf {
        self.0.join(format!("{LEASE}{number}.json"))
    }

    /// Notes a lease, or what it says by now.
    pub(super) fn note_lease(&self, lease: &Lease) -> io::Result<()> {
        write_secret(&self.lease_file(lease.number), &serde_json::to_vec(lease)?)
    }

    /// A lease that is noted.
    pub(super) fn lease(&self, number: LeaseNumber) -> Option<Lease> {
        let bytes = fs::read(self.lease_file(number)).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|lease: &Lease| lease.number == number)
    }

    /// Forgets a lease.
    pub(super) fn forget_lease(&self, number: LeaseNumber) {
        // It may never have been there.
        let _ = fs::remove_file(self.lease_file(number));
    }

    /// Forgets all leases but these. For a server that has no session yet.
    pub(crate) fn keep_leases(&self, kept: &[LeaseNumber]) {
        let kept: Vec<PathBuf> = kept.iter().map(|number| self.lease_file(*number)).collect();
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let is_lease = entry.file_name().to_string_lossy().starts_with(LEASE);
            if is_lease && !kept.contains(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Notes what the broker has said.
    pub(super) fn note_heard(&self, heard: &Heard) -> io::Result<()> {
        write_secret(&self.0.join(BROKER), &serde_json::to_vec(heard)?)
    }

    /// What it has said to an earlier server.
    pub(super) fn heard(&self) -> Option<Heard> {
        serde_json::from_slice(&fs::read(self.0.join(BROKER)).ok()?).ok()
    }

    /// A server that starts later asks the broker anew.
    pub(super) fn forget_heard(&self) {
        // It may never have been there.
        let _ = fs::remove_file(self.0.join(BROKER));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::lease;
    use super::*;

    #[test]
    fn leases_are_noted_for_as_long_as_sessions_are() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let notes = Notes::in_folder(folder);
        let (one, other) =
            (lease(Vec::new()), Lease { number: LeaseNumber(8), ..lease(Vec::new()) });
        notes.note_lease(&one).unwrap();
        notes.note_lease(&other).unwrap();
        assert_eq!(
            (notes.lease(one.number), notes.lease(LeaseNumber(9))),
            (Some(one.clone()), None)
        );
        // Another's, one that is damaged, and what was left unfinished.
        fs::copy(notes.lease_file(LeaseNumber(8)), notes.lease_file(LeaseNumber(9))).unwrap();
        assert_eq!(notes.lease(LeaseNumber(9)), None);
        fs::write(notes.lease_file(LeaseNumber(10)), "{").unwrap();
        assert_eq!(notes.lease(LeaseNumber(10)), None);
        fs::write(folder.join("lease-11.unfinished-1"), "{").unwrap();
        fs::write(folder.join("00ff.json"), "{}").unwrap();
        notes.keep_leases(&[one.number]);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2, "its own and a session's");
        notes.forget_lease(one.number);
        assert_eq!((notes.lease(one.number), notes.heard()), (None, None));
        fs::write(folder.join(BROKER), "{\"keys\": 1}").unwrap();
        assert_eq!(notes.heard(), None, "what makes no sense is as good as nothing");
        notes.forget_heard();
    }
}
